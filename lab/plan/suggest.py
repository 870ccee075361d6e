"""`-ts` borders that raise no warning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, islice, pairwise

from lab.plan.place import plan
from lab.plan.warnings import Scene, warnings

MOST = 5
TRIED = 20000


def suggest(scene: Scene) -> list[str]:
    """Up to `MOST` values of `-ts`, those that leave most room on the fullest device first.

    At most `TRIED` splits are looked at, in the order of their first border.
    """
    if scene.header.key("attention.compress_ratios", []):
        return []  # its rule does not explain every crash (see its limits): nothing to promise
    good: list[tuple[float, str]] = []
    for shares in islice(_splits(scene.header.layers + 1, len(scene.devices)), TRIED):
        flags = replace(scene.flags, split=tuple(map(float, shares)), layers=None)
        tried = Scene(scene.header, flags, scene.devices, plan(scene.header, flags, scene.devices))
        if warnings(tried):
            continue
        held = tried.plan.per_device()
        fullest = max(sum(held.get(d.name, {}).values()) / d.memory for d in scene.devices)
        good.append((fullest, ",".join(map(str, shares))))
    return [words for _, words in sorted(good)[:MOST]]


def _splits(positions: int, devices: int) -> Iterator[list[int]]:
    for borders in combinations(range(1, positions), devices - 1):
        ends = [0, *borders, positions]
        yield [high - low for low, high in pairwise(ends)]
