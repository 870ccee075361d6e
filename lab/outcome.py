"""Observations -> outcome: what happened, in one word. Pure: reads the evidence directory only.

The order of the questions is the order of `classify`:

1. did the lab itself fail, or a node run out of memory       error
   that no fault limited?
2. did a node die of a signal before the shutdown, that was   crash
   not a fault's own?
3. did a phase take longer than its budget?                   hang
4. did the head exit by itself, or answer with an error?      refused
5. did an answer differ from the reference?                   wrong-output
6. else                                                       ok
"""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass, field
from typing import Any

from lab import toml
from lab.aftermath import aftermath, starved_by_fault
from lab.compare import compare
from lab.evidence import Evidence
from lab.facts import facts
from lab.phase import phase_of
from lab.scenario import Workload
from lab.signatures import load_signatures

FIRST_SIGNAL_CODE = 128
OUT_OF_MEMORY = "out-of-memory"
KILLED = FIRST_SIGNAL_CODE + signal.SIGKILL
BROKEN_PIPE = FIRST_SIGNAL_CODE + signal.SIGPIPE
BY_FAULT = "killed-by-fault"
"""Signatures that no log line has."""


@dataclass(frozen=True)
class Outcome:
    """What happened."""

    outcome: str
    """`ok`, `crash`, `hang`, `refused`, `wrong-output`, or `error`: the lab failed."""
    node: str | None = None
    """The node that failed first: `head`, `worker1`, ..."""
    phase: str | None = None
    """The head's phase at that moment."""
    signature: str | None = None
    logged_by: str | None = None
    """The node whose log holds the signature."""
    line: str | None = None
    """The log line that matters most."""
    exit: int | None = None
    """The node's exit code; 128 + n is signal n."""
    signal: str | None = None
    alive: list[str] = field(default_factory=list)
    """The nodes that still ran at the end of the work."""
    reason: str | None = None
    """More about it, in one line."""
    max_logprob_diff: float | None = None
    """Largest difference of a token's log-probability from the reference, nats."""
    ties: int = 0
    """Answers that were compared only up to a token that rounding decided."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the head's log says about placement (`lab/facts.py`)."""
    after: dict[str, Any] = field(default_factory=dict)
    """What followed the fault (`lab/aftermath.py`); empty where there was none."""
    shutdown: str | None = None
    """How the head ended when asked to: `exit 0`, `exit 134`, ... Never the work's outcome."""

    def words(self) -> str:
        """One line for people."""
        parts = [self.outcome]
        if self.node:
            parts.append(f"of {self.node}" if self.outcome == "crash" else f"at {self.node}")
        if self.phase:
            parts.append(f"in {self.phase}")
        notes = [n for n in (self.signature, f"exit {self.exit}" if self.exit else None) if n]
        if notes:
            parts.append(f"({', '.join(notes)})")
        if self.reason and self.outcome != "ok":
            parts.append(f"- {self.reason}")
        return " ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The content of `outcome.json`."""
        return asdict(self)


def classify(evidence: Evidence) -> Outcome:
    """The outcome of a case, from its evidence directory alone."""
    outcome = _with(_classify(evidence), facts=facts(evidence))
    return _with(outcome, after=aftermath(evidence, outcome.shutdown))


def _classify(evidence: Evidence) -> Outcome:
    events = evidence.events()
    nodes: dict[str, dict[str, Any]] = evidence.read("nodes.json", {})
    work_end = _time_of(events, "shutdown")
    shutdown = _shutdown(nodes, work_end)

    if failed := next((e for e in events if e["event"] == "lab-error"), None):
        return Outcome("error", reason=_one_line(failed["what"]))
    if not events or not nodes:
        return Outcome(
            "error", reason="the evidence is incomplete: the lab was stopped in mid-case"
        )
    ours = [name for name in nodes if name != "toxiproxy"]
    if lost := [name for name in ours if not evidence.has_log(name)]:
        return Outcome("error", reason=f"the evidence is incomplete: no log of {', '.join(lost)}")
    limited = starved_by_fault(events)
    starved = [name for name, state in nodes.items() if _starved(name, state, limited, events)]
    if unlimited := [name for name in starved if name not in limited]:
        return Outcome("error", node=unlimited[0], reason="killed at its memory limit")

    alive = [
        n for n, s in nodes.items() if n != "toxiproxy" and (s["running"] or _after(s, work_end))
    ]
    dead = sorted(
        (n for n in nodes if n not in alive and n != "toxiproxy"),
        key=lambda name: nodes[name]["finished"],
    )
    if not nodes.get("toxiproxy", {}).get("running"):
        return Outcome("error", node="toxiproxy", reason="toxiproxy did not live to the end")
    if "head" not in nodes:
        return Outcome("error", reason="the head was never started")

    phase = phase_of(evidence, until=work_end)
    if starved:
        died = _failure("crash", evidence, starved[0], phase, nodes, alive)
        line = "(the engine: killed at its memory limit)"
        return _with(died, signature=OUT_OF_MEMORY, logged_by=None, line=line)
    # A worker that a fault ended did not crash; what the others make of it is the outcome.
    struck = [name for name in dead if _by_fault(name, nodes[name]["finished"], events)]
    if "head" in struck:
        died = _failure("crash", evidence, "head", phase, nodes, alive)
        return _with(died, signature=BY_FAULT, logged_by=None, line="(a fault ended it)")
    dead = [name for name in dead if name not in struck]
    codes = {name: int(nodes[name]["exit"] or 0) for name in dead}
    crashed = {name: code for name, code in codes.items() if code > FIRST_SIGNAL_CODE}
    if crashed:
        return _failure("crash", evidence, _first(crashed, evidence), phase, nodes, alive)
    if hang := next((e for e in events if e["event"] == "over-budget"), None):
        node_at = _failure("hang", evidence, "head", hang["phase"], nodes, alive)
        return _with(node_at, reason=f"more than {hang['seconds']:g} s", shutdown=shutdown)
    if dead:
        return _failure("refused", evidence, dead[0], phase, nodes, alive)
    return _with(_judge_answers(evidence, phase), alive=alive, shutdown=shutdown)


def _starved(
    name: str, state: dict[str, Any], limited: set[str], events: list[dict[str, Any]]
) -> bool:
    """Whether the kernel killed it for its memory. The engine may not know that yet: a node
    under a fault that takes memory away, killed by nothing else, is one as well."""
    if state["oom_killed"] or name not in limited or state["exit"] != KILLED:
        return bool(state["oom_killed"])
    sent = any(e["event"] == "signal" and e["node"] == name for e in events)
    return not sent and not _by_fault(name, state["finished"], events)


def _by_fault(node: str, finished: float, events: list[dict[str, Any]]) -> bool:
    """Whether a node's end is a fault's doing: it came while a fault that kills was at it."""
    return any(
        node in event["targets"] and event["began"] <= finished <= event["t"]
        for event in events
        if event["event"] == "fault-begin" and event["kills"]
    )


def _judge_answers(evidence: Evidence, phase: str) -> Outcome:
    answers: list[dict[str, Any]] = evidence.read("answers.json", [])
    reference: list[dict[str, Any]] = evidence.read("reference.json", [])
    case = evidence.read("case.json")
    if not answers:
        return Outcome("error", reason="no answer was recorded, though the head lived")
    for number, answer in enumerate(answers, 1):
        if answer.get("error"):
            reason = f"request {number}: {_one_line(answer['error'])}"
            return Outcome("refused", node="head", phase=phase, reason=reason)
    if not reference:
        if not case.get("compared", case["workers"]):
            return Outcome("ok", reason="no RPC: this is a reference")
        return Outcome("error", reason="there is no reference answer to compare with")
    if len(answers) != len(reference):
        reason = f"{len(answers)} answers, but {len(reference)} reference answers"
        return Outcome("error", reason=reason)
    workload = toml.validate(case["workload"], Workload, "case.json: workload")
    pairs = zip(answers, reference, strict=True)
    found = [compare(answer, right, workload) for answer, right in pairs]
    worst = max(comparison.worst for comparison in found)
    for number, comparison in enumerate(found, 1):
        if comparison.wrong:
            return Outcome(
                "wrong-output",
                node="head",
                phase="decode",
                reason=f"request {number}: {comparison.wrong}",
                max_logprob_diff=worst,
            )
    ties = sum(comparison.tie for comparison in found)
    return Outcome("ok", max_logprob_diff=worst, ties=ties)


def _failure(
    kind: str,
    evidence: Evidence,
    node: str,
    phase: str,
    nodes: dict[str, dict[str, Any]],
    alive: list[str],
) -> Outcome:
    name, logged_by, line = _signature(evidence)
    code = nodes[node]["exit"] if node not in alive else None
    return Outcome(
        kind,
        node=node,
        phase=phase,
        signature=name,
        logged_by=logged_by,
        line=line or _last_line(evidence, node),
        exit=code,
        signal=_signal_name(code),
        alive=alive,
    )


def _first(crashed: dict[str, int], evidence: Evidence) -> str:
    """Which of the crashed nodes, in order of their ends, was the cause of the others' end.

    A head dies of its worker's death; but the engine may note the two ends the other way round,
    since a peer's connection breaks before the engine knows. A worker dies of its head's only by
    SIGPIPE: it was about to answer.
    """
    workers = [n for n, code in crashed.items() if n != "head" and code != BROKEN_PIPE]
    _, logged_by, _ = _signature(evidence)
    first = workers or [name for name in ("head", *crashed) if name in crashed]
    return logged_by if logged_by in workers else first[0]


def _signature(evidence: Evidence) -> tuple[str | None, str | None, str | None]:
    logs = {node: evidence.log(node) for node in evidence.nodes()}
    for name, signature in load_signatures().items():
        for node, lines in logs.items():
            for _, line in lines:
                if signature.found_in(node, line):
                    return name, node, line.strip()
    return None, None, None


def _last_line(evidence: Evidence, node: str) -> str | None:
    lines = [line for _, line in evidence.log(node) if line.strip()]
    return lines[-1].strip() if lines else None


def _shutdown(nodes: dict[str, dict[str, Any]], work_end: float | None) -> str | None:
    head = nodes.get("head")
    if head is None or work_end is None or not _after(head, work_end):
        return None
    return f"exit {head['exit']}"


def _after(state: dict[str, Any], moment: float | None) -> bool:
    """Whether a node ended after a moment. The two clocks are one: the host's."""
    return moment is not None and state["finished"] is not None and state["finished"] >= moment


def _time_of(events: list[dict[str, Any]], name: str) -> float | None:
    return next((event["t"] for event in events if event["event"] == name), None)


def _signal_name(code: int | None) -> str | None:
    if code is None or code <= FIRST_SIGNAL_CODE:
        return None
    try:
        return signal.Signals(code - FIRST_SIGNAL_CODE).name
    except ValueError:
        return None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _with(outcome: Outcome, **changes: Any) -> Outcome:
    return Outcome(**{**outcome.to_json(), **changes})
