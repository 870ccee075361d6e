"""Which device holds what, by llama.cpp's own rule. Pure.

`-ts` counts n_layer + 1 positions, the output being the last; the comparison is in 32-bit floats,
as in the head. `-ot` moves weights alone: cache, state and operations stay with the layer.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from lab.errors import InputError
from lab.plan.cache import Cache, caches
from lab.plan.devices import Device
from lab.plan.flags import Flags
from lab.plan.header import Header

CPU = "CPU"
ALIGN = 32
"""Bytes that a tensor's place in a buffer is a multiple of, on a CPU worker."""


@dataclass(frozen=True)
class Plan:
    """`layers[n]` is the device of layer n, the last one the output's; sizes are in bytes."""

    layers: list[str]
    weights: dict[str, dict[str, int]]
    """Tensor's group ("0", "1", ..., "output", "input") -> device -> bytes."""
    experts: dict[str, int]
    """Device -> bytes of routed experts, part of the weights."""
    moved: dict[int, dict[str, set[str]]]
    """Layer -> device, not its own -> weights that `-ot` puts there, without `blk.N.`."""
    mapped: int
    """Bytes of the file that a head with mmap maps: from its first tensor on the CPU to the last,
    with all that lies between, whoever holds it."""
    caches: list[Cache] | None
    """None: not known for the architecture."""
    cache_on: list[str]

    def held(self, kind: str, layer: int) -> int:
        """Bytes of a layer's caches of a kind."""
        return sum(c.layers.get(layer, 0) for c in self.caches or [] if c.kind == kind)

    def per_device(self) -> dict[str, Counter[str]]:
        """Device -> kind (weights, kv, recurrent, compressor) -> bytes."""
        held: dict[str, Counter[str]] = {}
        for devices in self.weights.values():
            for device, size in devices.items():
                held.setdefault(device, Counter())["weights"] += size
        for cache in self.caches or []:
            for layer, size in cache.layers.items():
                held.setdefault(self.cache_on[layer], Counter())[cache.kind] += size
        return held


def used(flags: Flags, devices: list[Device]) -> list[Device]:
    """The devices that the flags leave to the head, in its order.

    Raises:
        InputError: a flag names a device that is not there.
    """
    known = {device.name: device for device in devices}
    if flags.named is not None and flags.named != ("none",):
        missing = [name for name in flags.named if name not in known]
        if missing:
            raise InputError(
                f"no device {missing[0]}; there are: {', '.join(known)}",
                where="--device (the head's)",
                hint="name devices as rpclab's own --device does",
            )
        devices = [known[name] for name in flags.named]
    elif flags.named:
        return []
    if flags.mode == "layer":
        return devices
    if flags.main >= len(devices):
        raise InputError(
            f"{flags.main}: there are {len(devices)} devices", where="-mg", hint="it counts from 0"
        )
    return [devices[flags.main]]


def assign(count: int, flags: Flags, devices: list[Device]) -> list[str]:
    """The device of each of `count` layers, and of the output."""
    on = used(flags, devices)
    total = count + 1
    if not on:
        return [CPU] * total
    shares = (list(flags.split) + [0.0] * len(on))[: len(on)]
    if not any(shares):
        shares = [float(device.memory) for device in on]
    ends = np.cumsum(np.array(shares, dtype=np.float32), dtype=np.float32)
    ends = ends / ends[-1] if ends[-1] else ends
    active = total if flags.layers is None else min(flags.layers, total)
    found = [CPU] * (total - active)
    for position in range(active):
        share = np.float32(position) / np.float32(active)
        found.append(on[int(np.searchsorted(ends, share, side="right"))].name)
    return found


def plan(header: Header, flags: Flags, devices: list[Device]) -> Plan:
    """Place everything.

    Raises:
        InputError: a flag names a device or a buffer type that is not there.
    """
    layers = assign(header.layers, flags, devices)
    names = {device.buffer: device.name for device in devices} | {CPU: CPU}
    for _, target in flags.overrides:
        if target not in names:
            raise InputError(
                f"no buffer type {target!r}; there are: {', '.join(names)}",
                where="-ot",
                hint="the head names a device's RPC0[host:port], whichever device it is",
            )
    weights: dict[str, dict[str, int]] = {}
    experts: Counter[str] = Counter()
    moved: dict[int, dict[str, set[str]]] = {}
    on_cpu: list[str] = []
    for name, size in header.tensors.items():
        group = _group(name)
        if group.isdigit() and int(group) >= header.trunk:
            continue  # the head does not load them, unless it drafts with them
        base = CPU if group == "input" else layers[-1 if group == "output" else int(group)]
        device, forced = base, False
        for pattern, target in flags.overrides:
            if re.search(pattern, name):
                device, forced = names[target], True
                break
        if device == CPU:
            on_cpu.append(name)
        if forced and group.isdigit() and device != base:
            there = moved.setdefault(int(group), {}).setdefault(device, set())
            there.add(name.removeprefix(f"blk.{group}."))
        held = weights.setdefault(group, {})
        held[device] = held.get(device, 0) + _padded(size)
        if _routed(name):
            experts[device] += _padded(size)
        if name == TIED and "output.weight" not in header.tensors:
            copy = device if forced else layers[-1]
            if copy != device:  # one device needs no second copy
                weights.setdefault("output", {})[copy] = _padded(size)
    return Plan(
        layers,
        weights,
        dict(experts),
        moved,
        _mapped(header, on_cpu),
        caches(header, flags),
        layers[:-1] if flags.kv_offload else [CPU] * header.layers,
    )


TIED = "token_embd.weight"
"""Serves as the output's matrix too, where the model has no other."""


def _group(name: str) -> str:
    block = re.match(r"blk\.(\d+)\.", name)
    return block[1] if block else "output" if name.startswith("output") else "input"


def _routed(name: str) -> bool:
    return "_exps" in name or "_chexps" in name


def _padded(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def _mapped(header: Header, names: list[str]) -> int:
    ranges: dict[int, tuple[int, int]] = {}
    for name in names:
        if span := header.spans.get(name):
            first, last = ranges.get(span.part, (span.start, span.end))
            ranges[span.part] = min(first, span.start), max(last, span.end)
    return sum(last - first for first, last in ranges.values())
