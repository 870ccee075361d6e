"""What a build did, as far as a search looks: not the exit code, not the moment. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lab.errors import InputError
from lab.mark import Mark

FIRST_RUNS = 3
"""Runs of the bad end that agree are enough to believe that it always does so."""
MOST_RUNS = 10
"""Runs of the bad end where they do not."""
MISSED = 0.01
"""How likely a bad build may be taken for a good one."""


@dataclass(frozen=True)
class Question:
    """What tells the two sides apart."""

    bad: Mark
    good: frozenset[Mark]
    repeat: int
    """Runs without the bad mark after which a build is good."""

    def side(self, marks: Sequence[Mark]) -> str | None:
        """`bad`, `good`, or None: it does something else, and says nothing."""
        if self.bad in marks:
            return "bad"
        return "good" if marks and set(marks) <= self.good else None


def question(bad: Sequence[Mark], good: Sequence[Mark], repeat: int | None) -> Question:
    """From runs of both ends.

    Raises:
        InputError: the bad end does nothing that the good one does not.
    """
    told = Counter(mark for mark in bad if mark not in good)
    if not told:
        raise InputError(
            f"good and bad do the same: {', '.join(map(str, dict.fromkeys(bad)))}",
            where="--good, --bad",
            hint="name a build that shows the failure and one that does not",
        )
    mark, seen = told.most_common(1)[0]
    return Question(mark, frozenset(good), repeat or repeats(seen, len(bad)))


def repeats(seen: int, runs: int) -> int:
    """How often a build must run without the failure to be called good.

    The failure was seen in `seen` of `runs`. Its rate is taken as (seen + 1) / (runs + 2): three
    of three do not prove that it always comes. The result misses one in a hundred.
    """
    rate = (seen + 1) / (runs + 2)
    return max(1, math.ceil(math.log(MISSED) / math.log(1 - rate)))
