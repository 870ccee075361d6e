"""What changed since the last time that each case ran. Pure.

Each kind of change has a bit of the exit code. The bits lie above those of `lab.errors.Exit`
(0 to 4, three bits), so that one code says both: `code & 7` is what every verb says, and
130 (interrupted) has bits that never come together otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import IntFlag

from lab.errors import Exit
from lab.nightly.result import CaseResult, Observed, Result

INCOMPLETE = 5
"""Exit code where nothing failed, but not everything was run."""


class Kind(IntFlag):
    """Kinds of change: each its bit of the exit code."""

    NEW_CRASH = 8
    """It crashes now, and did not."""
    GONE_CRASH = 16
    """It crashed, and does not now."""
    CHANGED_SIGNATURE = 32
    """It failed and fails, otherwise: another signature, node, phase, or sort of failure."""
    CHANGED_OUTPUT = 64
    """It answers, with other tokens than before; or one of the two answers is wrong."""
    FLAKY = 128
    """Runs of this night disagree with each other."""

    @property
    def title(self) -> str:
        """`new crash`."""
        return str(self.name).lower().replace("_", " ")


ANSWERS = ("ok", "wrong-output")


@dataclass(frozen=True)
class Change:
    """One change of one case."""

    kind: Kind
    case: str
    before: str
    """Empty for a flake: it needs no night before."""
    now: str

    def to_json(self) -> dict[str, str]:
        """For `result.json`."""
        return asdict(self) | {"kind": self.kind.title}


def compare(now: Result, before: Result) -> list[Change]:
    """Every change of this night's cases, in the order of the kinds, then of the cases.

    A case that did not run on one of the sides says nothing; nor does one that was flaky before,
    where any outcome is as it was.
    """
    known = {case.id: case for case in before.cases if case.observed}
    found = []
    for case in now.cases:
        if case.flaky:
            found.append(Change(Kind.FLAKY, case.id, "", case.words()))
        elif case.observed and case.id in known and not known[case.id].flaky:
            found += _changed(case, known[case.id])
    return sorted(found, key=lambda change: change.kind)


def _changed(case: CaseResult, earlier: CaseResult) -> list[Change]:
    was, now = earlier.observed[0], case.observed[0]
    kind = _kind(was, now)
    return [Change(kind, case.id, was.words(), now.words())] if kind else []


def _kind(was: Observed, now: Observed) -> Kind | None:
    if was == now:
        return None
    if (was.outcome == "crash") != (now.outcome == "crash"):
        return Kind.NEW_CRASH if now.outcome == "crash" else Kind.GONE_CRASH
    if was.outcome in ANSWERS and now.outcome in ANSWERS:
        told = was.output and now.output and was.output != now.output
        return Kind.CHANGED_OUTPUT if told or was.outcome != now.outcome else None
    same = (was.outcome, was.node, was.phase, was.signature) == (
        now.outcome,
        now.node,
        now.phase,
        now.signature,
    )
    return None if same else Kind.CHANGED_SIGNATURE


def exit_code(result: Result, changes: Iterable[Change]) -> int:
    """The low three bits: as of every verb, or `INCOMPLETE`. The others: what changed.

    A flaky case counts as flaky alone, not as passed or failed.
    """
    words = {case.word for case in result.cases}
    code: int = Exit.OK
    if "error" in words:
        code = Exit.ERROR
    elif "fail" in words:
        code = Exit.FAIL
    elif result.not_run:
        code = INCOMPLETE
    for change in changes:
        code |= change.kind
    return code
