"""Which phase of its work the head was in, from its log and the timeline. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

PHASES = ("start", "load", "warmup", "prefill", "decode", "shutdown")

LOG_MARKS: tuple[tuple[str, str], ...] = (
    # Both lines are printed at `-lv 4` by every build from b9951 to b11434.
    ("llama_model_loader:", "load"),
    ("warming up the model", "warmup"),
)
"""A line of the head's log that begins a phase: (part of the line, phase)."""

EVENT_MARKS = {"request": "prefill", "first-token": "decode", "shutdown": "shutdown"}
"""An event of the timeline that begins a phase."""


def phase_of(head_log: Iterable[tuple[float, str]], events: Iterable[dict[str, Any]]) -> str:
    """The furthest phase reached, one of `PHASES`."""
    return max((phase for _, phase in starts(head_log, events)), key=PHASES.index, default="start")


def starts(
    head_log: Iterable[tuple[float, str]], events: Iterable[dict[str, Any]]
) -> list[tuple[float, str]]:
    """When each phase began, first occurrences only: (unix seconds, phase), in time order."""
    first: dict[str, float] = {}
    for at, line in head_log:
        for mark, phase in LOG_MARKS:
            if phase not in first and mark in line:
                first[phase] = at
    for event in events:
        if (phase := EVENT_MARKS.get(event["event"], "")) and phase not in first:
            first[phase] = event["t"]
        if event["event"] == "head-started" and "start" not in first:
            first["start"] = event["t"]
    return sorted((at, phase) for phase, at in first.items())
