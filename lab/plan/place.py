"""Which device holds what, by llama.cpp's own rule. Pure.

`-ts` counts n_layer + 1 positions, the output being the last; the comparison is in 32-bit floats,
as in the head. `-ot` moves weights alone: cache, state and operations stay with the layer.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

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
    moved: dict[int, set[str]]
    """Layer -> devices (no CPU) that `-ot` gave weights other than experts."""
    kv: list[int]
    """Of each layer, bytes of KV cache; -1: not known for the architecture."""
    recurrent: list[int]
    cache_on: list[str]

    def per_device(self) -> dict[str, Counter[str]]:
        """Device -> kind (weights, kv, recurrent) -> bytes."""
        held: dict[str, Counter[str]] = {}
        for devices in self.weights.values():
            for device, size in devices.items():
                held.setdefault(device, Counter())["weights"] += size
        for device, kv, state in zip(self.cache_on, self.kv, self.recurrent, strict=True):
            held.setdefault(device, Counter()).update(kv=max(kv, 0), recurrent=state)
        return held


def assign(count: int, flags: Flags, devices: list[Device]) -> list[str]:
    """The device of each of `count` layers, and of the output."""
    used = devices[:1] if flags.mode == "none" else devices
    shares = list(flags.split) or [float(device.memory) for device in used]
    shares = (shares + [0.0] * len(used))[: len(used)]
    ends = np.cumsum(np.array(shares, dtype=np.float32), dtype=np.float32)
    ends = ends / ends[-1] if ends[-1] else ends
    total = count + 1
    active = total if flags.layers is None else min(flags.layers, total)
    start = total - active
    found = [CPU] * start
    for position in range(active):
        share = np.float32(position) / np.float32(active)
        found.append(used[int(np.searchsorted(ends, share, side="right"))].name)
    return found


def plan(header: Header, flags: Flags, devices: list[Device]) -> Plan:
    """Place everything."""
    layers = assign(header.layers, flags, devices)
    names = {device.buffer: device.name for device in devices}
    weights: dict[str, dict[str, int]] = {}
    experts: Counter[str] = Counter()
    moved: dict[int, set[str]] = {}
    tensors = dict(header.tensors)
    if "output.weight" not in tensors and "token_embd.weight" in tensors:
        tensors["output.weight"] = tensors["token_embd.weight"]  # tied: a copy with the output
    for name, size in tensors.items():
        block = re.match(r"blk\.(\d+)\.", name)
        group = block[1] if block else "output" if name.startswith("output") else "input"
        device = layers[int(group)] if block else layers[-1] if group == "output" else CPU
        for pattern, target in flags.overrides:
            if re.search(pattern, name):
                device = names.get(target, target)
                if block and device not in (CPU, layers[int(group)]) and "_exps" not in name:
                    moved.setdefault(int(group), set()).add(device)
                break
        padded = -(-size // ALIGN) * ALIGN
        held = weights.setdefault(group, {})
        held[device] = held.get(device, 0) + padded
        if "_exps" in name or "_chexps" in name:
            experts[device] += padded
    kv, recurrent = zip(
        *(_cache(header, flags, layer) for layer in range(header.layers)), strict=True
    )
    on = layers[:-1] if flags.kv_offload else [CPU] * header.layers
    return Plan(layers, weights, dict(experts), moved, list(kv), list(recurrent), on)


def _cache(header: Header, flags: Flags, layer: int) -> tuple[int, int]:
    """Bytes of KV cache and of recurrent state of a layer; KV -1 where no rule is known."""
    if header.arch not in KNOWN_KV:
        return -1, 0
    if header.key("full_attention_interval", 1) > 1 and (layer + 1) % header.key(
        "full_attention_interval"
    ):
        return 0, _state(header) * flags.slots
    cells = tokens(header, flags)
    heads = header.at("attention.head_count_kv", layer)
    keys = heads * header.key("attention.key_length", _head(header))
    values = heads * header.key("attention.value_length", _head(header))
    if header.key("attention.kv_lora_rank", 0):
        values = 0  # latent attention: the values are a part of the keys
    size = cells * (keys * flags.key_bytes + values * flags.value_bytes)
    types = header.key("attention.indexer.types", [0] * header.layers)
    if types[layer]:
        size += cells * header.key("attention.indexer.key_length") * flags.key_bytes
    return int(size), 0


KNOWN_KV = ("llama", "glm-dsa", "qwen35moe")
"""Architectures whose cache the plan computes; the sizes of the others are said to be unknown."""


def tokens(header: Header, flags: Flags) -> int:
    """Cells of the cache over all slots: each slot's share is padded to 256."""
    context = flags.context or int(header.key("context_length"))
    return -(-(context // flags.slots) // 256) * 256 * flags.slots


def _head(header: Header) -> int:
    return int(header.key("embedding_length")) // int(header.at("attention.head_count", 0))


def _state(header: Header) -> int:
    inner, state = header.key("ssm.inner_size"), header.key("ssm.state_size")
    channels = inner + 2 * header.key("ssm.group_count") * state
    return int(((header.key("ssm.conv_kernel") - 1) * channels + state * inner) * 4)
