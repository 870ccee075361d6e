"""Which phase of its work the head was in, from the logs and the timeline. Pure.

`warmup` is everything that the head computes before it serves: the empty run, and the short decode
by which llama-server finds out whether a sequence can be cut (`common_context_can_seq_rm`), which
`--no-warmup` does not leave out.
"""

from __future__ import annotations

from typing import Any

from lab.evidence import Evidence

PHASES = ("start", "load", "warmup", "prefill", "decode", "shutdown")

LOG_MARKS: tuple[tuple[str, str, str], ...] = (
    ("head", "llama_model_loader:", "load"),
    ("head", "warming up the model", "warmup"),
    # The head logs in a thread of its own, and an abort loses its last lines; a worker that was
    # asked to compute a graph proves the same.
    ("worker", "[graph_compute]", "warmup"),
)
"""A log line that proves a phase: (kind of node, part of the line, phase). Seen at `-lv 4` in every
build from b9951 to b10816."""

EVENT_MARKS = {
    "head-started": "start",
    "request": "prefill",
    "first-token": "decode",
    "shutdown": "shutdown",
}
"""An event of the timeline that begins a phase."""


def phase_of(evidence: Evidence, until: float | None = None) -> str:
    """The furthest phase reached, by events before `until` (unix seconds); one of `PHASES`."""
    reached = starts(evidence, until)
    return max(reached, key=PHASES.index, default="start")


def starts(evidence: Evidence, until: float | None = None) -> dict[str, float]:
    """When each phase that was reached began: phase -> unix seconds of its first sign."""
    signs: list[tuple[float, str]] = []
    for node in evidence.nodes():
        for at, line in evidence.log(node):
            signs += [
                (at, phase)
                for kind, mark, phase in LOG_MARKS
                if node.startswith(kind) and mark in line
            ]
    signs += [(e["t"], EVENT_MARKS[e["event"]]) for e in evidence.events() if _marks(e, until)]
    first: dict[str, float] = {}
    for at, phase in sorted(signs):
        first.setdefault(phase, at)
    return first


def _marks(event: dict[str, Any], until: float | None) -> bool:
    return event["event"] in EVENT_MARKS and (until is None or event["t"] < until)
