"""The builds or commits between two ends, oldest first, each as a pin of its own."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lab import pins
from lab.errors import InputError
from lab.pins import BUILD, ID_LENGTH, Pin
from lab.sources import Kind, git


@dataclass(frozen=True)
class Step:
    """One build or commit."""

    name: str
    """`b10724`, or the first characters of a hash."""
    commit: str
    """The full hash; of a build its tag."""

    def pin(self) -> Pin:
        """A pin that no file knows."""
        about = "a step of a search"
        if re.fullmatch(BUILD, self.name):
            return Pin.model_validate({"id": self.name, "role": "unknown", "about": about})
        # A commit's build number is known only when it is fetched.
        return Pin(id=self.name, commit=self.commit, build="b0", role="unknown", about=about)


def steps(kind: Kind, one: str, other: str) -> list[Step]:
    """From one end to the other, both included, the older first.

    Raises:
        InputError: an end that does not exist, or the same twice.
        LabError: the source does not answer.
    """
    found = _builds(one, other) if kind == "sdist" else _commits(one, other)
    if len(found) < 2:
        raise InputError(f"{one} and {other} are the same", where="--good, --bad")
    return found


def build_of(text: str) -> int:
    """`b10724`, `10724`, or a pin: the build that stands in for it. Raises `InputError`."""
    if (known := pins.load_pins().get(text)) and known.sdist:
        return known.sdist.build
    number = text.removeprefix("b")
    if not number.isdigit():
        raise InputError(
            f"not a build: {text!r}; allowed: b10724, 10724, or a pin", where="--good, --bad"
        )
    return int(number)


def between(builds: Sequence[int], one: str, other: str) -> list[int]:
    """Those of `builds`, sorted, from one end to the other. Raises `InputError`. Pure."""
    first, last = sorted((build_of(one), build_of(other)))
    for build in (first, last):
        if build not in builds:
            place = bisect.bisect(builds, build)
            near = ", ".join(f"b{b}" for b in builds[max(0, place - 1) : place + 1])
            raise InputError(
                f"b{build} is not released as an sdist; the nearest are {near}",
                where="--good, --bad",
            )
    return [build for build in builds if first <= build <= last]


def _builds(one: str, other: str) -> list[Step]:
    # Imported where an index is asked: it takes a third of a second.
    from lab.sources import sdist

    return [Step(f"b{build}", f"b{build}") for build in between(sdist.builds(), one, other)]


def _commits(one: str, other: str) -> list[Step]:
    return [Step(commit[:ID_LENGTH], commit) for commit in git.line(_commit(one), _commit(other))]


def _commit(text: str) -> str:
    known = pins.load_pins().get(text)
    return known.commit if known else text
