"""What the head's log says about placement, as structured facts. Pure.

The lines are the precursors that tell two runs apart before one crashes: which device holds how
much of what, and where a fused operation sits on another device than its layer (#25644).
"""

from __future__ import annotations

import re
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
        for kind, pattern in BUFFERS.items():
            if found := re.search(pattern, line):
                held = buffers.setdefault(kind, {})
                held[found[1]] = round(held.get(found[1], 0.0) + float(found[2]), 2)
        if found := MISPLACED.search(line):
            layer, device, what, on = found.groups()
            misplaced.append({"layer": int(layer), "device": device, "what": what, "on": on})
    return {"buffers": buffers, "misplaced": misplaced}
