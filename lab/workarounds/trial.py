"""What a trial is, and what came of it, from the evidence of its case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab.args import value
from lab.case import Case
from lab.evidence import Evidence
from lab.mark import Mark
from lab.outcome import classify
from lab.pool import Pool
from lab.workload import speed

LONG = 600
"""Tokens of a long prompt: more than the 512 that the head computes at once (`-ub`)."""
SLOTS = 4
GENERATED = 200
"""Tokens that are generated where their speed is taken."""
BATCHED = 0.01
"""How far (nats) log-probabilities may be where several sequences share a batch: other kernels."""


@dataclass(frozen=True)
class Result:
    """One run."""

    mark: Mark
    words: str
    """The outcome, in one line."""
    path: str
    """Where its evidence is."""
    speed: float | None = None
    """Generated tokens per second, by the server's own count."""

    @property
    def cured(self) -> bool:
        """It answered, and rightly."""
        return self.mark.outcome == "ok"

    @classmethod
    def of(cls, path: Path) -> Result:
        """From a case's evidence."""
        evidence = Evidence(path)
        outcome = classify(evidence)
        answers = evidence.read("answers.json", [])
        rate = speed(answers[0]) if answers else None
        return cls(Mark.of(outcome), outcome.words(), str(path), rate)

    @classmethod
    def load(cls, data: dict[str, Any]) -> Result:
        """Of `dataclasses.asdict`."""
        return cls(**data | {"mark": Mark(**data["mark"])})


class Trials:
    """Runs cases in a pool, and says what came of them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def run(
        self, cases: Sequence[tuple[str, Case]], *, alone: bool = False
    ) -> Iterator[tuple[str, Result]]:
        """Each (key, case) -> (key, result), as they end."""
        for key, path in self._pool.run(cases, alone=alone):
            yield key, Result.of(path)


def in_slots(case: Case) -> Case:
    """The case with several requests at once, each in a slot of its own."""
    each = _room(case.workload.prompt, case.workload.predict)
    more = {"requests": SLOTS, "together": True, "ties": True}
    tolerance = max(BATCHED, case.workload.tolerance)
    return _asked(case, "slots", each * SLOTS, ("-np", str(SLOTS)), tolerance=tolerance, **more)


def long(case: Case) -> Case:
    """The case with one long prompt, and an answer long enough to take its speed."""
    prompt = max(LONG, case.workload.prompt)
    predict = max(GENERATED, case.workload.predict)
    more = {"prompt": prompt, "predict": predict, "requests": 1, "together": False}
    return _asked(case, "long", _room(prompt, predict), (), **more)


def _asked(case: Case, name: str, context: int, args: tuple[str, ...], **workload: Any) -> Case:
    """The case with another workload, and a context that has room for it, which changes what is
    right as well."""
    room = ("-c", str(max(context, int(value(case.args, "-c", "--ctx-size") or 0))))
    right = case.args if case.right is None else case.right
    return replace(
        case,
        id=f"{case.id.rstrip(']')} {name}]",
        args=(*case.args, *room, *args),
        right=(*right, *room),
        workload=case.workload.model_copy(update=workload),
    )


def _room(prompt: int, predict: int) -> int:
    return -(-(prompt + predict + 1) // 256) * 256
