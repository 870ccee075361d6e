"""What is known to go wrong with a placement: a table, one entry a rule, with its report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lab.plan import cache
from lab.plan.devices import Device
from lab.plan.flags import BLOCK, UNQUANTISED, Flags
from lab.plan.header import Header
from lab.plan.place import CPU, Plan, plan


@dataclass(frozen=True)
class Scene:
    """All that a rule looks at."""

    header: Header
    flags: Flags
    devices: list[Device]
    plan: Plan

    @classmethod
    def of(cls, header: Header, flags: Flags, devices: list[Device]) -> Scene:
        """With the plan that follows."""
        return cls(header, flags, devices, plan(header, flags, devices))

    @property
    def borders(self) -> list[int]:
        """Positions whose device is another than the one before, from the CPU's part on; the last
        position is the output's. Activations cross the network there."""
        on = self.plan.layers
        return [n for n in range(1, len(on)) if on[n] != on[n - 1] and on[n - 1] != CPU]


@dataclass(frozen=True)
class Rule:
    """`find` yields one line for each place where the rule is broken."""

    name: str
    report: str
    """Its number upstream; "" where there is none."""
    builds: str
    find: Callable[[Scene], Iterator[str]]
    limits: str = ""
    """What the rule is known not to explain."""


def _refused(scene: Scene) -> Iterator[str]:
    """As `llama_init_from_model` of b10705 refuses them."""
    keys, values = scene.flags.keys, scene.flags.values
    if keys != values and scene.header.arch in ("glm-dsa", "deepseek4"):
        yield f"{scene.header.arch} takes no -ctk {keys} with another -ctv, {values}"
    if values not in UNQUANTISED and scene.flags.flash == "off":
        yield f"-ctv {values} needs -fa on"
    if scene.flags.flash == "off":
        return
    for flag, kind, name in (("-ctk", keys, "key_length"), ("-ctv", values, "value_length")):
        head = _head(scene.header, name)
        if kind not in UNQUANTISED and head % BLOCK:
            yield f"{flag} {kind}: its blocks of {BLOCK} do not divide a head of {head}"


def _head(header: Header, name: str) -> int:
    default = int(header.key("embedding_length")) // int(header.at("attention.head_count", 0))
    return int(header.key(f"attention.{name}", default))


def bad_moves(header: Header, plan: Plan, layer: int) -> list[str]:
    """What `-ot` does to a layer that crashes; each a piece of a sentence."""
    return list(_bad_moves(header, plan, layer))


def _bad_moves(header: Header, plan: Plan, layer: int) -> Iterator[str]:
    ratios = cache.ratios(header)
    before_compressor = layer + 1 < len(ratios) and ratios[layer + 1]
    for device, names in sorted(plan.moved.get(layer, {}).items()):
        if device == CPU:
            own = {n for n in header.tensors if n.startswith(f"blk.{layer}.")}
            if ratios and len(names) == len(own):
                yield "-ot puts all weights on the CPU"
        elif bad := sorted(name for name in names if not HARMLESS.match(name)):
            yield f"-ot puts weights on {device} ({', '.join(bad[:3])}, {len(bad)} in all)"
        elif before_compressor and "ffn_down_exps.weight" in names:
            yield f"-ot puts ffn_down_exps on {device}, and layer {layer + 1} compresses"


HARMLESS = re.compile(r"ffn_(up|down|gate|gate_up)(_exps|_chexps|_shexp)?\.")
"""Weights that each answered on another worker than their layer, alone and together."""


def _override(scene: Scene) -> Iterator[str]:
    for layer in sorted(scene.plan.moved):
        for what in bad_moves(scene.header, scene.plan, layer):
            on = scene.plan.layers[layer]
            yield f"layer {layer}: {what}; its cache and operations are on {on}"


def _inside_group(header: Header, flags: Flags, layer: int) -> str:
    types = cache.indexers(header)
    if layer >= len(types) or types[layer]:
        return ""
    owner = max(n for n in range(layer) if types[n])
    if owner < first_on_device(header, flags):
        return ""  # what the head computes itself reaches every worker
    return f"layer {layer} uses the indexer of layer {owner}, on the other side"


def _before_compressor(header: Header, flags: Flags, layer: int) -> str:
    ratios = cache.ratios(header)
    if flags.kv_offload and layer < len(ratios) and ratios[layer]:
        return f"layer {layer} compresses ({ratios[layer]} to 1)"
    return ""


def _lone_output(header: Header, flags: Flags, layer: int) -> str:  # noqa: ARG001
    alone = header.arch == "deepseek4" and layer == header.layers
    return "the output is alone on its device: give that one a layer" if alone else ""


def first_on_device(header: Header, flags: Flags) -> int:
    """The first position that `-ngl` leaves to a device."""
    total = header.layers + 1
    return 0 if flags.layers is None else max(0, total - flags.layers)


BORDERS: dict[str, Callable[[Header, Flags, int], str]] = {
    "border-inside-indexer-group": _inside_group,
    "border-before-compressor": _before_compressor,
    "output-alone": _lone_output,
}
"""Rules of a border alone, whichever devices it parts: why it is bad just before a position."""


def bad_border(header: Header, flags: Flags, layer: int) -> bool:
    """Whether a rule is broken by a border before this position."""
    return any(rule(header, flags, layer) for rule in BORDERS.values())


def _at_borders(name: str) -> Callable[[Scene], Iterator[str]]:
    def find(scene: Scene) -> Iterator[str]:
        for layer in scene.borders:
            if why := BORDERS[name](scene.header, scene.flags, layer):
                yield f"the border before position {layer}: {why}"

    return find


def _no_indexer(scene: Scene) -> Iterator[str]:
    ratios = cache.ratios(scene.header)
    if ratios and cache.CSA not in ratios:
        yield f"no layer has ratio {cache.CSA}: the head divides by zero, with any placement"


def _top_k(scene: Scene) -> Iterator[str]:
    ratios, types = cache.ratios(scene.header), cache.indexers(scene.header)
    cells = cache.sequence(scene.header, scene.flags)
    limits = {device.name: device.top_k for device in scene.devices}
    seen: set[str] = set()
    for layer, device in enumerate(scene.plan.layers[: scene.header.trunk]):
        sorts = (ratios and ratios[layer] == cache.CSA) or (types and types[layer])
        width = cells // cache.CSA if ratios else cells
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


RULES: tuple[Rule, ...] = (
    Rule("cache-type-refused", "", "measured at f1793c1c4 (b10705)", _refused),
    Rule(
        "ot-against-ts",
        "25644",
        "measured at b9951 and f1793c1c4 (b10705); answers at b10724 and 1548a240e (b10816)",
        _override,
        "It warns of more than crashes: a whole layer moved to a worker crashed always, a single "
        "tensor often not (a norm, the output of attention). deepseek4's layer moved to the CPU "
        "answered where it is the first of its device.",
    ),
    Rule(
        "border-inside-indexer-group",
        "28047",
        "measured at b10326, b10338 and f1793c1c4 (b10705); answers at b9951, b10724 and "
        "1548a240e (b10816)",
        _at_borders("border-inside-indexer-group"),
    ),
    Rule(
        "border-before-compressor",
        "28047",
        "measured at f1793c1c4 (b10705); b10326 and b10338 crash before ratio 4 and answer before "
        "128; answers at b10724 and 1548a240e (b10816)",
        _at_borders("border-before-compressor"),
        "At b9951 deepseek4 crashed with every border.",
    ),
    Rule(
        "output-alone",
        "28047",
        "measured at b9951, b10326, b10338 and f1793c1c4 (b10705); answers at b10724 and "
        "1548a240e (b10816)",
        _at_borders("output-alone"),
    ),
    Rule("no-indexer-layer", "", "measured at f1793c1c4 (b10705)", _no_indexer),
    Rule(
        "top-k-over-limit",
        "26746",
        "measured at b10326 and b11434, on a simulated device",
        _top_k,
        "The width is that of a full context; a shorter prompt answers. Measured for deepseek4; "
        "glm-dsa's width is computed alone.",
    ),
    Rule("over-memory", "", "all", _memory, "Compute buffers are not counted."),
)


def warnings(scene: Scene) -> list[tuple[Rule, str]]:
    """Every rule's lines, in the table's order."""
    return [(rule, line) for rule in RULES for line in rule.find(scene)]


def refused(scene: Scene) -> list[str]:
    """Why the head would not make a context at all, if so."""
    return list(_refused(scene))
