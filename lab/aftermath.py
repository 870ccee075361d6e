"""What followed a fault: evidence -> facts, and facts against `expect.after`. Pure."""

from __future__ import annotations

from typing import Any

from lab import toml
from lab.compare import compare
from lab.evidence import Evidence
from lab.faults.after import After
from lab.scenario import Workload

FIRST_SIGNAL_CODE = 128
MIB = 1 << 20
PROBE_TOKENS = 64
"""What a request after the fault asks for at most: the beginning of the workload's first answer."""

Events = list[dict[str, Any]]


def starved_by_fault(events: Events) -> set[str]:
    """The nodes whose memory a fault limited."""
    begun = [e for e in events if e["event"] == "fault-begin" and e["starves"]]
    return {node for event in begun for node in event["targets"]}


def aftermath(evidence: Evidence, shutdown: str | None) -> dict[str, Any]:
    """The keys of `After`, as they came, and `missed`: faults that never began.

    Empty where the case has neither faults nor a second head.
    """
    case = evidence.read("case.json", {})
    given = [*case.get("faults", []), *case.get("under", [])]
    if not given and not case.get("again"):
        return {}
    events = evidence.events()
    begun = {event["fault"] for event in events if event["event"] == "fault-begin"}
    then, seconds = _then(evidence, events)
    return {
        "missed": [
            f"{fault['kind']} on {fault['on']}"
            for number, fault in enumerate(given)
            if number not in begun
        ],
        "then": then,
        "seconds": seconds,
        "client": _client(evidence, events),
        "health_before": _health(events, "before"),
        "health_after": _health(events, "end"),
        "memory_mib": _memory(events),
        "again": _again(evidence),
        "shutdown": _shutdown(shutdown, events),
    }


def differences(after: dict[str, Any], expect: After) -> list[str]:
    """Where what followed is not what must hold."""
    found = [f"the fault {fault} never began" for fault in after.get("missed", [])]
    for key in ("then", "client", "health_before", "health_after", "again", "shutdown"):
        wanted, got = getattr(expect, key), after.get(key)
        if wanted is not None and wanted != got:
            found.append(f"after the fault: {key.replace('_', ' ')} {got}, not {wanted}")
    if expect.within is not None and expect.then == after.get("then"):
        seconds = after.get("seconds")
        hangs = expect.then == "hangs"
        if seconds is None or (seconds < expect.within if hangs else seconds > expect.within):
            bound = "at least" if hangs else "within"
            found.append(
                f"after the fault: {expect.then} after {seconds} s, not {bound} {expect.within:g} s"
            )
    if expect.memory_mib is not None:
        more = after.get("memory_mib")
        if more is None or more > expect.memory_mib:
            found.append(
                f"a worker holds {more} MiB more than before, not up to {expect.memory_mib:g}"
            )
    return found


def _then(evidence: Evidence, events: Events) -> tuple[str | None, float | None]:
    """What the head did next, and how many seconds after the fault's last begin or end."""
    nodes = evidence.read("nodes.json", {})
    head = nodes.get("head", {})
    work_end = next((e["t"] for e in events if e["event"] == "shutdown"), None)
    ended = head.get("finished")
    if ended is not None and (work_end is None or ended < work_end):
        word = "aborts" if (head.get("exit") or 0) > FIRST_SIGNAL_CODE else "refuses"
        return word, _since_fault(events, ended)
    for event in events:
        if event["event"] in ("over-budget", "probe-over-budget"):
            return "hangs", _since_fault(events, event["t"])
    at = next((e["t"] for e in events if e["event"] == "probe-answer"), None)
    answer = evidence.read("probe.json", {}).get("answer")
    return (_word(evidence, answer), _since_fault(events, at)) if at else (None, None)


def _since_fault(events: Events, at: float) -> float | None:
    """Seconds from the last begin or end of a fault before `at`."""
    moments = [
        float(event["began"] if event["event"] == "fault-begin" else event["t"])
        for event in events
        if event["event"] in ("fault-begin", "fault-end") and event.get("by") != "case"
    ]
    before = [moment for moment in moments if moment <= at]
    return round(at - max(before), 3) if before else None


def _word(evidence: Evidence, answer: dict[str, Any] | None) -> str | None:
    """`answers`, `answers-wrong` or `refuses`; None where nothing can be said."""
    if answer is None:
        return None
    if answer["error"]:
        return "refuses"
    reference = evidence.read("reference.json", [])
    if not reference:
        return None
    workload = toml.validate(evidence.read("case.json")["workload"], Workload, "case.json")
    asked = min(workload.predict, PROBE_TOKENS)
    lists = {key: value[:asked] for key, value in reference[0].items() if isinstance(value, list)}
    right = reference[0] | lists
    return "answers-wrong" if compare(answer, right, workload).wrong else "answers"


def _client(evidence: Evidence, events: Events) -> str | None:
    """What the requests under way saw; several kinds are joined by `+`."""
    answers = evidence.read("answers.json", [])
    asked = sum(event["event"] == "request" for event in events)
    seen = {_seen(answer["error"]) for answer in answers}
    seen |= {"waits"} if asked > len(answers) else set()
    return "+".join(sorted(seen)) or None


def _seen(error: str | None) -> str:
    """Of one request. An error of the server's is HTTP, or a JSON object in the stream."""
    if error is None:
        return "answer"
    return "error" if error.startswith(("HTTP ", "{")) else "stream-ends"


def _health(events: Events, when: str) -> str | None:
    found = [e["head"] for e in events if e["event"] == "health" and e["when"] == when]
    return found[0] if found else None


def _memory(events: Events) -> float | None:
    """How many MiB more the worker holds that holds the most more; of workers that still run."""
    held = {e["when"]: e["bytes"] for e in events if e["event"] == "memory"}
    more = [
        (after - held["before"][node]) / MIB
        for node, after in held.get("after", {}).items()
        if after is not None and held.get("before", {}).get(node) is not None
    ]
    return round(max(more), 2) if more else None


def _again(evidence: Evidence) -> str | None:
    found = evidence.read("again.json")
    if found is None:
        return None
    if found["exit"] is not None:
        return "aborts" if found["exit"] > FIRST_SIGNAL_CODE else "refuses"
    return _word(evidence, found["answer"]) if found["answer"] else "hangs"


def _shutdown(words: str | None, events: Events) -> str | None:
    if any(event["event"] == "shutdown-over-budget" for event in events):
        return "hangs"
    if words is None:
        return None
    code = int(words.removeprefix("exit "))
    return "aborts" if code > FIRST_SIGNAL_CODE else "clean"
