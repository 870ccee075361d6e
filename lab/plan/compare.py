"""A plan against what a real head logged: every difference, as a line. Pure.

The head logs sizes in MiB with two places, so a sum of n lines is off by up to n halves of the last
place; the shapes of caches and the layers' devices are compared exactly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from lab import facts
from lab.plan.devices import Device
from lab.plan.place import CPU, Plan
from lab.plan.warnings import Scene, refused

HALF = 0.005001
"""Of the last place of a logged size, and what a float adds to it."""
MAPPED = "CPU_Mapped"
"""The head's name for what it maps of the file, where mmap is on."""
FIRST = "layer   0 assigned"
"""In the line that begins a loading."""

EXPLAINED: dict[str, str] = {}
"""What begins a difference that is known -> why it is none of the plan's."""


@dataclass(frozen=True)
class Logged:
    """What a head said of its placement."""

    layers: list[str]
    sizes: list[facts.Size]
    cells: list[facts.Cells]
    last: str
    """The last line of all."""

    @classmethod
    def read(cls, lines: list[str]) -> Logged:
        """With the lab's own parser; of the last loading, as `-fit on` tries one before."""
        last = lines[-1] if lines else "(an empty log)"
        begins = [n for n, line in enumerate(lines) if facts.layers([line]) and FIRST in line]
        lines = lines[begins[-1] :] if begins else lines
        found = [size for line in lines for size in facts.sizes(line)]
        return cls(facts.layers(lines), found, facts.cells(lines), last)


def differences(scene: Scene, logged: Logged) -> list[str]:
    """Where the two differ; a line names the thing, what was planned and what was logged."""
    if not logged.layers:
        return [f"the head did not come as far as loading: {logged.last}"]
    found = list(_layers(scene.plan, logged))
    if refusal := refused(scene):
        made = [size for size in logged.sizes if size.kind != "weights"]
        found += [f"refusal: planned {refusal[0]}, the head made caches"] if made else []
    else:
        found += _cells(scene, logged)
        found += _sizes(scene.plan, scene.devices, logged, ("kv", "recurrent", "compressor"))
    found += _sizes(scene.plan, scene.devices, logged, ("weights",))
    return found


def explained(difference: str) -> str | None:
    """The reason of a difference that is known, else None."""
    return next((why for begin, why in EXPLAINED.items() if difference.startswith(begin)), None)


def _layers(plan: Plan, logged: Logged) -> Iterator[str]:
    if len(plan.layers) != len(logged.layers):
        yield f"layers: planned {len(plan.layers)}, logged {len(logged.layers)}"
    for layer, (ours, theirs) in enumerate(zip(plan.layers, logged.layers, strict=False)):
        if ours != theirs:
            yield f"layer {layer}: planned on {ours}, logged on {theirs}"


def _cells(scene: Scene, logged: Logged) -> Iterator[str]:
    slots = scene.flags.slots
    ours = [
        facts.Cells(cache.cells, len(cache.layers), slots, cache.streams)
        for cache in scene.plan.caches or []
        if cache.kind == "kv" and cache.layers
    ]
    if ours != logged.cells:
        yield f"caches: planned {ours}, logged {logged.cells}"


def _sizes(
    plan: Plan, devices: list[Device], logged: Logged, kinds: tuple[str, ...]
) -> Iterator[str]:
    names = {device.buffer: device.name for device in devices} | {CPU: CPU, MAPPED: MAPPED}
    theirs: dict[tuple[str, str], float] = defaultdict(float)
    lines: Counter[tuple[str, str]] = Counter()
    for size in logged.sizes:
        key = size.kind, names.get(size.device, size.device)
        theirs[key] += size.mib
        lines[key] += 1
    ours = {
        (kind, name): size / 2**20
        for name, held in plan.per_device().items()
        for kind, size in held.items()
    }
    if ("weights", MAPPED) in theirs:
        ours.pop(("weights", CPU), None)
        ours["weights", MAPPED] = plan.mapped / 2**20
    for key in sorted({*ours, *theirs}):
        if key[0] not in kinds:
            continue
        planned, told = ours.get(key, 0.0), theirs.get(key, 0.0)
        if abs(planned - told) > HALF * max(lines[key], 1):
            yield f"{key[0]} on {key[1]}: planned {planned:.3f} MiB, logged {told:.2f} MiB"
