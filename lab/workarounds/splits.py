"""The `-ts` worth a try: all of few layers, else those that the model's structure suggests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from lab.plan.header import Header

FEW = 28
"""So many splits are all tried: of 8 layers and the output over 2 or 3 workers."""
MANY = 20000
"""Of more than so many only the most even one is looked at."""

Shares = tuple[int, ...]


def splits(header: Header, workers: int) -> list[Shares]:
    """Shares for each worker, the most even first."""
    positions = header.layers + 1
    if workers < 2 or workers > positions:
        return []
    if math.comb(positions - 1, workers - 1) <= FEW:
        borders = list(range(1, positions))
    else:
        borders = starts(header) or list(range(1, positions))
    if math.comb(len(borders), workers - 1) > MANY:
        even = [positions * number / workers for number in range(1, workers)]
        borders = sorted({min(borders, key=lambda at: abs(at - want)) for want in even})
    return sorted(_cut(borders, positions, workers), key=lambda shares: (max(shares), shares))[:FEW]


def starts(header: Header) -> list[int]:
    """Layers that need little of the one before: with an indexer of their own, without a
    compressor, after one of full attention."""
    count = header.layers
    types = header.key("attention.indexer.types", [])
    ratios = header.key("attention.compress_ratios", [])
    interval = int(header.key("full_attention_interval", 1))
    return [
        layer
        for layer in range(1, count)
        if (types and types[layer])
        or (ratios and not ratios[layer])
        or (interval > 1 and layer % interval == 0)
    ]


def words_of(shares: Sequence[float]) -> str:
    """As `-ts` is spelled."""
    return ",".join(f"{share:g}" for share in shares)


def _cut(borders: Sequence[int], positions: int, workers: int) -> Iterator[Shares]:
    for chosen in combinations(borders, workers - 1):
        yield tuple(high - low for low, high in pairwise((0, *chosen, positions)))
