"""`-ts` borders that raise no warning."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from lab.plan.place import CPU, used
from lab.plan.warnings import Scene, bad_border, bad_moves, first_on_device, warnings

MOST = 5
KEPT = 25
"""Ways to each border that are gone on with."""


def suggest(scene: Scene) -> list[str]:
    """Up to `MOST` values of `-ts`, those that leave most room on the fullest device first.

    Only what the rules explain can be kept away from: see each rule's `limits`. Device after
    device, the best ways to fill the first ones up to a position are kept; what is said is held
    against all rules once more.
    """
    devices = used(scene.flags, scene.devices)
    total = scene.header.layers + 1
    first = first_on_device(scene.header, scene.flags)
    active = total - first
    if not 0 < len(devices) <= active:
        return []
    good = [
        not bad_border(scene.header, scene.flags, first + position) for position in range(active)
    ]
    ways: dict[int, list[tuple[float, tuple[int, ...]]]] = {0: [(0.0, ())]}
    for index, device in enumerate(devices):
        sums, ends = _on(scene, index, first, active)
        found: dict[int, list[tuple[float, tuple[int, ...]]]] = {}
        for start, kept in ways.items():
            for end in range(start + 1, ends[start] + 1):
                if end < active and not good[end]:
                    continue
                load = (sums[end] - sums[start]) / device.memory
                found.setdefault(end, []).extend(
                    (max(fullest, load), (*shares, end - start)) for fullest, shares in kept
                )
        ways = {end: sorted(them)[:KEPT] for end, them in found.items()}
    tried = (shares for _, shares in ways.get(active, []))
    return [",".join(map(str, shares)) for shares in tried if not _warns(scene, shares)][:MOST]


def _on(scene: Scene, index: int, first: int, active: int) -> tuple[list[int], list[int]]:
    """Of one device: the bytes of all positions before each, and how far a run of layers that it
    may hold goes on from each (`-ot` may want a layer elsewhere)."""
    count = len(used(scene.flags, scene.devices))
    alone = Scene.of(
        scene.header,
        replace(scene.flags, split=tuple(float(n == index) for n in range(count))),
        scene.devices,
    ).plan
    sizes, refused = [], []
    for position in range(first, first + active):
        group = str(position) if position < scene.header.layers else "output"
        size = sum(
            n for on, n in alone.weights.get(group, {}).items() if on == alone.layers[position]
        )
        if group != "output" and alone.cache_on[position] != CPU:
            size += sum(c.layers.get(position, 0) for c in alone.caches or [])
        sizes.append(size)
        refused.append(bool(bad_moves(scene.header, alone, position)))
    ends = []
    for start in range(active):
        stop = next((n for n in range(start, active) if refused[n]), active)
        ends.append(stop)
    return [0, *accumulate(sizes)], [*ends, active]


def _warns(scene: Scene, shares: tuple[int, ...]) -> bool:
    flags = replace(scene.flags, split=tuple(map(float, shares)))
    return bool(warnings(Scene.of(scene.header, flags, scene.devices)))
