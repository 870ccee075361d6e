"""What is known to go wrong with a placement: a table, one entry a rule, with its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lab.plan.devices import Device
from lab.plan.flags import Flags
from lab.plan.header import Header
from lab.plan.place import CPU, Plan, tokens


@dataclass(frozen=True)
class Scene:
    """All that a rule looks at."""

    header: Header
    flags: Flags
    devices: list[Device]
    plan: Plan

    @property
    def borders(self) -> list[int]:
        """Layers whose device is another than the one before, the CPU's part left out."""
        on = self.plan.layers[:-1]
        return [n for n in range(1, len(on)) if on[n] != on[n - 1] and on[n - 1] != CPU]


@dataclass(frozen=True)
class Rule:
    """`find` yields one line for each place where the rule is broken."""

    name: str
    report: str
    builds: str
    find: Callable[[Scene], Iterator[str]]
    limits: str = ""
    """What the rule is known not to explain."""


def _override(scene: Scene) -> Iterator[str]:
    for layer, devices in sorted(scene.plan.moved.items()):
        yield (
            f"layer {layer}: -ot puts weights on {', '.join(sorted(devices))}, "
            f"its cache and operations are on {scene.plan.layers[layer]}"
        )


def _indexer(scene: Scene) -> Iterator[str]:
    types = scene.header.key("attention.indexer.types", [])
    for layer in scene.borders:
        if types and not types[layer]:
            yield f"the border before layer {layer} is inside a group that shares one indexer"


def _compressor(scene: Scene) -> Iterator[str]:
    ratios = scene.header.key("attention.compress_ratios", [])
    if not ratios or not scene.flags.kv_offload:
        return
    last = max((n for n, ratio in enumerate(ratios) if ratio), default=-1)
    for layer in scene.borders:
        if layer <= last:
            yield f"the border before layer {layer}: compressor layers follow it (up to {last})"


def _top_k(scene: Scene) -> Iterator[str]:
    ratios = scene.header.key("attention.compress_ratios", [])
    types = scene.header.key("attention.indexer.types", [])
    per_slot = tokens(scene.header, scene.flags) // scene.flags.slots
    limits = {device.name: device.top_k for device in scene.devices}
    seen: set[str] = set()
    for layer, device in enumerate(scene.plan.layers[:-1]):
        sorts = (ratios and ratios[layer] == 4) or (types and types[layer])
        width = per_slot // 4 if ratios else per_slot
        limit = limits.get(device)
        if sorts and limit is not None and width > limit and device not in seen:
            seen.add(device)
            yield f"{device}: TOP_K over up to {width} entries, the device takes {limit}"


def _memory(scene: Scene) -> Iterator[str]:
    held = scene.plan.per_device()
    for device in scene.devices:
        size = sum(held.get(device.name, {}).values())
        if size > device.memory:
            yield f"{device.name}: {size / 2**30:.1f} GiB of {device.memory / 2**30:.1f} GiB"


BEFORE_FIX = "measured at f1793c1c4 (b10705); gone at 1548a240e"

RULES: tuple[Rule, ...] = (
    Rule("ot-against-ts", "25644", BEFORE_FIX, _override),
    Rule("border-inside-indexer-group", "28047", BEFORE_FIX, _indexer),
    Rule(
        "compressor-across-border",
        "28047",
        BEFORE_FIX,
        _compressor,
        "It warns of more than crashes: -ts 1,6 over ratios 0,0,4,128,4,128 answers. "
        "And of less: -ts 6,1 there (only the output on the second) "
        "crashes there unwarned. With 4 or 5 "
        "workers it crashes even where all compressor layers are on the first.",
    ),
    Rule("top-k-over-limit", "26746", "measured at 3653e6d6d (b10326) and b11434", _top_k),
    Rule("over-memory", "-", "all", _memory, "Compute buffers are not counted."),
)


def warnings(scene: Scene) -> list[tuple[Rule, str]]:
    """Every rule's lines, in the table's order."""
    return [(rule, line) for rule in RULES for line in rule.find(scene)]
