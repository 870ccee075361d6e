"""Outcome -> verdict: does what happened agree with what must happen? Pure, `record` apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from lab import toml
from lab.aftermath import differences
from lab.errors import InputError
from lab.evidence import Evidence
from lab.facts import workers_used
from lab.outcome import Outcome, classify
from lab.scenario import Expect

BUFFER_TOLERANCE = 0.011
"""MiB: llama.cpp logs hundredths, and several lines may add up."""

Word = Literal["pass", "fail", "skip", "error"]


@dataclass(frozen=True)
class Verdict:
    """`pass`, `fail`, `skip` or `error`, and why in one line."""

    verdict: Word
    reason: str
    line: str | None = None
    """The log line that matters most."""

    def to_json(self) -> dict[str, Any]:
        """The content of `verdict.json`."""
        return asdict(self)


def judge(outcome: Outcome, expect: Expect) -> Verdict:
    """Compare; the reason of a `fail` names both outcomes."""
    if outcome.outcome == "error":
        return Verdict("error", f"the lab failed: {outcome.reason}", outcome.line)
    differences = _differences(outcome, expect)
    if not differences:
        compared = outcome.outcome == "ok" and outcome.max_logprob_diff is not None
        right = ", output right" if compared else ""
        right += f" ({outcome.ties} up to a tie)" if outcome.ties else ""
        return Verdict("pass", outcome.words() + right, outcome.line)
    reason = f"expected {_words(expect)}, got {outcome.words()}"
    if outcome.outcome == expect.outcome:
        reason += f" [{'; '.join(differences)}]"
    return Verdict("fail", reason, outcome.line)


def judge_evidence(evidence: Evidence) -> tuple[Outcome, Verdict]:
    """Classify and judge a case from its evidence alone. Writes nothing.

    Raises:
        InputError: the evidence is not what this version of the lab writes.
    """
    try:
        case = evidence.read("case.json")
        if case.get("skip"):
            return Outcome("skip"), Verdict("skip", case["skip"])
        outcome = classify(evidence)
        expect = case["expect"]
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, OSError) as error:
        raise InputError(
            f"the evidence is damaged: {type(error).__name__}: {error}", where=str(evidence.path)
        ) from error
    where = f"{evidence.path / 'case.json'}: expect"
    return outcome, judge(outcome, toml.validate(expect, Expect, where))


def record(evidence: Evidence, outcome: Outcome, verdict: Verdict) -> None:
    """Write `outcome.json` and `verdict.json`; earlier ones become `verdict.1.json` and so on."""
    case = evidence.read("case.json")
    if outcome.outcome != "skip":
        evidence.put_aside("outcome.json")
        evidence.write("outcome.json", outcome.to_json())
    evidence.put_aside("verdict.json")
    evidence.write("verdict.json", {"case": case["id"], **verdict.to_json()})


def _differences(outcome: Outcome, expect: Expect) -> list[str]:
    if outcome.outcome != expect.outcome:
        return [f"outcome {outcome.outcome}, not {expect.outcome}"]
    found = []
    for key in ("node", "phase", "signature", "logged_by", "exit"):
        wanted, got = getattr(expect, key), getattr(outcome, key)
        if wanted is not None and not _agrees(wanted, got):
            found.append(f"{key} {got}, not {wanted}")
    found += _placement(outcome.facts, expect)
    found += differences(outcome.after, expect.after)
    for kinds, wanted, words in ((expect.alive, True, "no"), (expect.dead, False, "a")):
        for kind in kinds:
            if any(_agrees(kind, node) for node in outcome.alive) != wanted:
                found.append(f"{words} {kind} alive at the end")
    return found


def _placement(facts: dict[str, Any], expect: Expect) -> list[str]:
    """Where the head's log says something else about placement than is expected."""
    found = []
    for kind, devices in expect.buffers.items():
        held = facts.get("buffers", {}).get(kind, {})
        for device, size in devices.items():
            # Not held at all is 0: llama.cpp logs no empty buffer.
            got = held.get(device, 0.0)
            if abs(got - size) > BUFFER_TOLERANCE:
                found.append(f"{kind} on {device}: {got:g} MiB, not {size:g}")
    used = workers_used(facts)
    if expect.workers_used is not None and used != expect.workers_used:
        found.append(f"weights on {used} workers, not {expect.workers_used}")
    if expect.misplaced is not None:
        layers = sorted({entry["layer"] for entry in facts.get("misplaced", [])})
        if layers != sorted(expect.misplaced):
            found.append(f"misplaced layers {layers}, not {sorted(expect.misplaced)}")
    return found


def _agrees(wanted: Any, got: Any) -> bool:
    """`worker` means any worker; everything else means itself."""
    if wanted == "worker":
        return isinstance(got, str) and got.startswith("worker")
    return bool(wanted == got)


def _words(expect: Expect) -> str:
    return Outcome(
        expect.outcome,
        node=expect.node,
        phase=expect.phase,
        signature=expect.signature,
        exit=expect.exit,
    ).words()
