"""What the head's log says about placement, as structured facts. Pure.

The lines are the precursors that tell two runs apart before one crashes: which device holds how
much of what, and where a fused operation sits on another device than its layer (#25644).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lab.evidence import Evidence

BUFFERS: dict[str, str] = {
    "weights": r"(\S+) +model buffer size = +([\d.]+) MiB",
    "kv": r"(\S+) +KV buffer size = +([\d.]+) MiB",
    "recurrent": r"(\S+) +RS buffer size = +([\d.]+) MiB",
    "compressor": r"(\S+) +DSV4 \w+ state buffer size = +([\d.]+) MiB",
    "compute": r"(\S+) +compute buffer size = +([\d.]+) MiB",
}
"""What a buffer holds -> its line: device, MiB. Several lines of one device add up."""

MISPLACED = re.compile(
    r"layer (\d+) is assigned to device (\S+) but (.+?) is assigned to device (\S+)"
)


LAYER = re.compile(r"load_tensors: layer +(\d+) assigned to device (\S+?),")
CELLS = re.compile(r"llama_kv_cache: size = .*\( *(\d+) cells, +(\d+) layers, +(\d+)/(\d+) seqs\)")


@dataclass(frozen=True)
class Size:
    """One line of a buffer's size."""

    kind: str
    """A key of `BUFFERS`."""
    device: str
    mib: float
    """As logged: rounded to two places."""


@dataclass(frozen=True)
class Cells:
    """One line of a cache's shape: cells of each stream, layers, slots, streams."""

    cells: int
    layers: int
    slots: int
    streams: int


def sizes(line: str) -> Iterator[Size]:
    """The size that a line tells, if it does."""
    for kind, pattern in BUFFERS.items():
        if found := re.search(pattern, line):
            yield Size(kind, found[1], float(found[2]))


def layers(lines: Iterable[str]) -> list[str]:
    """The device of each layer, the output's last, as `-lv 5` logs them; of the last loading."""
    found = [(int(match[1]), match[2]) for line in lines if (match := LAYER.search(line))]
    count = max((number for number, _ in found), default=-1) + 1
    return [device for _, device in found[-count:]] if count else []


def cells(lines: Iterable[str]) -> list[Cells]:
    """The caches in the head's order; those with no layer are left out."""
    found = (CELLS.search(line) for line in lines)
    caches = [Cells(*map(int, match.groups())) for match in found if match]
    return [cache for cache in caches if cache.layers]


RPC_DEVICE = "RPC"
"""How the names of workers' devices begin."""


def workers_used(facts: dict[str, Any]) -> int:
    """On how many workers' devices there are weights."""
    held = facts.get("buffers", {}).get("weights", {})
    return sum(size > 0 for device, size in held.items() if device.startswith(RPC_DEVICE))


def facts(evidence: Evidence) -> dict[str, Any]:
    """`{"buffers": {kind: {device: MiB}}, "misplaced": [{layer, device, what, on}]}`."""
    buffers: dict[str, dict[str, float]] = {}
    misplaced: list[dict[str, Any]] = []
    for _, line in evidence.log("head"):
        for size in sizes(line):
            held = buffers.setdefault(size.kind, {})
            held[size.device] = round(held.get(size.device, 0.0) + size.mib, 2)
        if found := MISPLACED.search(line):
            layer, device, what, on = found.groups()
            misplaced.append({"layer": int(layer), "device": device, "what": what, "on": on})
    return {"buffers": buffers, "misplaced": misplaced}
