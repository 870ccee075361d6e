"""What each link of a case costs, from runs of more and less work, near and far."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from lab.case import Case
from lab.errors import LabError
from lab.evidence import Evidence
from lab.images import ImageSpec
from lab.models import ModelSpec
from lab.observe import HELLO_BYTES
from lab.outcome import classify
from lab.scenario import Budget, Expect, Link, Workload

PROMPT, PREDICT, REQUESTS = 256, 48, 3
FAR_MS = 20
"""Delay of one link, each way, against none."""
CHECKED_MS = (5, 10, 40)
"""Delays of all links, each way, at which a prediction is held against a run."""
ARGS = ("-ngl", "99", "-c", "2048", "-t", "1", "-np", "1", "-fit", "off")


class Runs(Protocol):
    """Runs cases."""

    def run(
        self, cases: Sequence[tuple[str, Case]], *, alone: bool = False
    ) -> Iterator[tuple[str, Path]]:
        """(key, case) -> (key, its evidence), as they end."""


@dataclass(frozen=True)
class Amount:
    """A measured value and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.4g} +- {self.error:.1g}"


@dataclass(frozen=True)
class Cost:
    """What one link carries for one token."""

    up: Amount
    """Bytes to the worker."""
    down: Amount
    """Bytes from it."""
    trips: Amount
    """Round trips that are waited for, one after another."""


@dataclass(frozen=True)
class Bill:
    """Of one number of workers."""

    workers: int
    prompt: list[Cost]
    """Of each link, for a prompt token in a prompt of `PROMPT`."""
    generated: list[Cost]
    """Of each link, for a generated token."""
    compute: Amount
    """Seconds of a generated token on this machine, with no delay on any link."""
    checked: dict[int, float]
    """Delay in ms, each way, on all links -> generated tokens per second, as measured."""


@dataclass(frozen=True)
class Seen:
    """What one run showed."""

    prompt: Amount
    """Seconds of a prompt."""
    generated: Amount
    """Seconds of a generated token."""
    traffic: dict[str, dict[str, int]]


def cases(pin: str, name: str, spec: ModelSpec, workers: int, *, check: bool) -> dict[str, Case]:
    """The runs that a bill needs, by name."""
    plain = _case(pin, name, spec, workers)
    found = {
        "base": plain,
        "long-prompt": _asked(plain, prompt=2 * PROMPT),
        "long-answer": _asked(plain, predict=2 * PREDICT),
    }
    for number in range(1, workers + 1):
        link = Link(latency_ms=FAR_MS, only=f"worker{number}")
        found[f"far-{number}"] = replace(plain, link=link)
    for delay in CHECKED_MS if check else ():
        found[f"check-{delay}"] = replace(plain, link=Link(latency_ms=delay))
    return {
        key: replace(case, id=f"bill[{name}-{workers}w-{pin}-{key}]") for key, case in found.items()
    }


def bill(workers: int, seen: dict[str, Seen]) -> Bill:
    """The cost of each link. Pure.

    Args:
        seen: what the runs of `cases` showed, by their names.
    """
    base = seen["base"]
    alike = [its.traffic for key, its in seen.items() if not key.startswith("long")]
    prompt, generated = [], []
    for number in range(1, workers + 1):
        link, far = f"worker{number}", seen[f"far-{number}"]

        def carried(more: str, tokens: int, link: str = link) -> tuple[Amount, Amount]:
            its = seen[more].traffic
            up, down = (_bytes(its, base.traffic, alike, link, way, tokens) for way in WAYS)
            return up, down

        trips = _trips(far.prompt, base.prompt)
        each = Amount(trips.value / PROMPT, trips.error / PROMPT)
        prompt.append(Cost(*carried("long-prompt", REQUESTS * PROMPT), each))
        trips = _trips(far.generated, base.generated)
        generated.append(Cost(*carried("long-answer", REQUESTS * PREDICT), trips))
    checked = {
        delay: 1 / seen[f"check-{delay}"].generated.value
        for delay in CHECKED_MS
        if f"check-{delay}" in seen
    }
    return Bill(workers, prompt, generated, base.generated, checked)


def measure(
    runs: Runs,
    wanted: dict[str, Case],
    say: Callable[[str], None],
) -> dict[str, Seen]:
    """Run the cases one at a time.

    Raises:
        LabError: one of them did not answer rightly.
    """
    found = {}
    for key, path in runs.run(list(wanted.items()), alone=True):
        found[key] = look(path)
        say(f"{len(found):2}/{len(wanted)} {wanted[key].id}: {found[key].generated.value:.4f} s")
    return found


def look(path: Path) -> Seen:
    """Read a run's evidence."""
    evidence = Evidence(path)
    outcome = classify(evidence)
    if outcome.outcome != "ok":
        raise LabError(f"it does not answer: {outcome.words()}", where=str(path))
    timings = [answer["timings"] for answer in evidence.read("answers.json")]
    return Seen(
        prompt=_mean(t["prompt_ms"] / 1000 for t in timings),
        generated=_mean(t["predicted_ms"] / 1000 / (t["predicted_n"] - 1) for t in timings),
        traffic=evidence.read("links.json"),
    )


WAYS = ("up", "down")


def _case(pin: str, name: str, spec: ModelSpec, workers: int) -> Case:
    return Case(
        id="",
        scenario="bill",
        head=ImageSpec(pin),
        workers=(ImageSpec(pin),) * workers,
        model=spec,
        model_name=name,
        args=ARGS,
        worker_args=("-t", "1"),
        workload=Workload(prompt=PROMPT, predict=PREDICT, requests=REQUESTS),
        link=Link(),
        budget=Budget(),
        needs=(),
        expect=Expect(outcome="ok"),
        why="what a link costs",
    )


def _asked(case: Case, **changes: Any) -> Case:
    return replace(case, workload=case.workload.model_copy(update=changes))


def _mean(values: Iterable[float]) -> Amount:
    """The first request also sets up what later ones find."""
    kept = list(values)[1:]
    return Amount(statistics.mean(kept), statistics.stdev(kept) / math.sqrt(len(kept)))


def _trips(far: Amount, near: Amount) -> Amount:
    """Round trips, from the time that a delay of `FAR_MS` each way adds."""
    seconds = 2 * FAR_MS / 1000
    return Amount((far.value - near.value) / seconds, math.hypot(far.error, near.error) / seconds)


def _bytes(
    more: dict[str, dict[str, int]],
    base: dict[str, dict[str, int]],
    alike: list[dict[str, dict[str, int]]],
    link: str,
    way: str,
    tokens: int,
) -> Amount:
    """Bytes of a token, from runs that differ by `tokens`; its error from runs that do not."""
    spread = statistics.pstdev(its[link][way] for its in alike if _counted(its, link))
    if not _counted(more, link) or not _counted(base, link):
        raise LabError(f"the bytes of {link} were not counted in time", hint="run it again")
    return Amount((more[link][way] - base[link][way]) / tokens, math.sqrt(2) * spread / tokens)


def _counted(traffic: dict[str, dict[str, int]], link: str) -> bool:
    return traffic[link]["up"] > HELLO_BYTES
