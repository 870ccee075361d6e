"""The caches of each architecture, as llama.cpp b10705 makes them. Pure.

A cache has some cells, each with a row for every layer it serves, in as many streams as there are
slots (one for all of them where the cache is unified).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lab.plan.flags import Flags
from lab.plan.header import Header

PAD = 256
"""Cells of a slot are a multiple of this."""
FLOAT = 4
CSA, HCA = 4, 128
"""Tokens to one compressed token in a deepseek4 layer; the first kind has an indexer."""


@dataclass(frozen=True)
class Cache:
    """One cache. `kind` is the head's word for its buffers: kv, recurrent or compressor."""

    kind: str
    name: str
    cells: int
    streams: int
    layers: dict[int, int]
    """Layer -> bytes, over all streams."""


def caches(header: Header, flags: Flags) -> list[Cache] | None:
    """All caches of the model, or None where its architecture is not known here."""
    rule = RULES.get(header.arch)
    return rule(header, flags) if rule else None


def sequence(header: Header, flags: Flags) -> int:
    """Cells that one sequence can fill: all of a unified cache, a slot's share of another."""
    context = pad(_context(header, flags))
    return context if flags.unified else pad(context // flags.slots)


def pad(cells: int) -> int:
    """Up to the next multiple of `PAD`."""
    return -(-cells // PAD) * PAD


def indexers(header: Header) -> list[int]:
    """glm-dsa: for each layer 1 = has an indexer of its own, 0 = shares the one before; else []."""
    if header.arch != "glm-dsa":
        return []
    shares = int(header.key("context_length")) >= SHARING_CONTEXT
    default = [int(not shares or n < 2 or (n - 2) % 4 == 0) for n in range(header.trunk)]
    return [int(kind) for kind in header.key("attention.indexer.types", default)]


SHARING_CONTEXT = 1048576
"""The loader takes a model without the key for one that shares from this trained context on."""


def ratios(header: Header) -> list[int]:
    """deepseek4: the compression of each layer; else []."""
    if header.arch != "deepseek4":
        return []
    return [int(ratio) for ratio in header.key("attention.compress_ratios")][: header.trunk]


def _context(header: Header, flags: Flags) -> int:
    return flags.context or int(header.key("context_length"))


def _streams(flags: Flags) -> int:
    return 1 if flags.unified else flags.slots


def _window(header: Header, flags: Flags, *, unified: bool) -> int:
    """Cells of a sliding-window cache: the window, and room for one batch on its way."""
    cells = sequence(header, flags)
    if flags.swa_full:
        return cells
    batch = min(_context(header, flags), flags.batch)
    batch = min(batch, flags.ubatch or flags.batch)
    windows = flags.slots if unified else 1
    return pad(min(cells, int(header.key("attention.sliding_window")) * windows + batch))


def _rows(header: Header, flags: Flags, layer: int, *, values: bool = True) -> float:
    """Bytes of one cell's row in a layer."""
    heads = int(header.at("attention.head_count_kv", layer))
    head = int(header.key("embedding_length")) // int(header.at("attention.head_count", layer))
    keys = int(header.key("attention.key_length", head)) * flags.key_bytes
    held = int(header.key("attention.value_length", head)) * flags.value_bytes if values else 0
    return heads * (keys + held)


def _kv(
    name: str, cells: int, streams: int, layers: Iterable[int], row: Callable[[int], float]
) -> Cache:
    sizes = {layer: int(cells * streams * row(layer)) for layer in layers}
    return Cache("kv", name, cells, streams, sizes)


def _plain(header: Header, flags: Flags) -> list[Cache]:
    def row(layer: int) -> float:
        return _rows(header, flags, layer)

    return [_kv("full", sequence(header, flags), _streams(flags), range(header.trunk), row)]


def _gpt_oss(header: Header, flags: Flags) -> list[Cache]:
    pattern = header.key("attention.sliding_window_pattern", 2)
    slides = [
        bool(pattern[n]) if isinstance(pattern, list) else n % pattern < pattern - 1
        for n in range(header.trunk)
    ]

    def row(layer: int) -> float:
        return _rows(header, flags, layer)

    def of(sliding: bool) -> list[int]:
        return [n for n, slide in enumerate(slides) if slide == sliding]

    cells, streams = sequence(header, flags), _streams(flags)
    window = _window(header, flags, unified=flags.unified)
    return [
        _kv("full", cells, streams, of(False), row),
        _kv("window", window, streams, of(True), row),
    ]


def _glm_dsa(header: Header, flags: Flags) -> list[Cache]:
    cells, streams = sequence(header, flags), _streams(flags)
    own = [layer for layer, has in enumerate(indexers(header)) if has]
    key = int(header.key("attention.indexer.key_length")) * flags.key_bytes
    return [
        # Latent attention: the values are a part of the keys.
        _kv(
            "latent",
            cells,
            streams,
            range(header.trunk),
            lambda n: _rows(header, flags, n, values=False),
        ),
        _kv("indexer", cells, streams, own, lambda _: key),
    ]


def _deepseek4(header: Header, flags: Flags) -> list[Cache]:
    """Every slot has streams of its own, `-kvu` or not: then each is as long as the whole cache."""
    cells, slots = sequence(header, flags), flags.slots
    layers = {
        ratio: [n for n, r in enumerate(ratios(header)) if r == ratio] for ratio in (CSA, HCA)
    }
    head = int(header.key("attention.key_length"))
    index = int(header.key("attention.indexer.key_length"))

    def row(layer: int) -> float:
        return _rows(header, flags, layer, values=False)

    def shorter(ratio: int) -> int:
        return pad(max(1, -(-cells // ratio)))

    def state(name: str, ratio: int, rows: int, width: int) -> Cache:
        size = 2 * FLOAT * rows * width * slots  # a value and a score
        return Cache("compressor", name, rows, slots, dict.fromkeys(layers[ratio], size))

    window = _window(header, flags, unified=False)
    return [
        _kv("window", window, slots, range(header.trunk), row),
        _kv("csa", shorter(CSA), slots, layers[CSA], row),
        _kv("hca", shorter(HCA), slots, layers[HCA], row),
        _kv("indexer", shorter(CSA), slots, layers[CSA], lambda _: index * flags.key_bytes),
        state("csa", CSA, 2 * CSA, 2 * head),
        state("hca", HCA, HCA, head),
        state("lid", CSA, 2 * CSA, 2 * index),
    ]


def _qwen35moe(header: Header, flags: Flags) -> list[Cache]:
    every = int(header.key("full_attention_interval", 4))
    known = header.key("attention.recurrent_layers", [])
    recurs = [bool(known[n]) if known else (n + 1) % every != 0 for n in range(header.trunk)]
    inner, state = int(header.key("ssm.inner_size")), int(header.key("ssm.state_size"))
    channels = inner + 2 * int(header.key("ssm.group_count")) * state
    size = ((int(header.key("ssm.conv_kernel")) - 1) * channels + state * inner) * FLOAT
    full = [n for n, recurrent in enumerate(recurs) if not recurrent]
    rest = [n for n, recurrent in enumerate(recurs) if recurrent]
    cells, streams = sequence(header, flags), _streams(flags)
    return [
        _kv("full", cells, streams, full, lambda n: _rows(header, flags, n)),
        Cache("recurrent", "state", flags.slots, 1, dict.fromkeys(rest, size * flags.slots)),
    ]


RULES: dict[str, Callable[[Header, Flags], list[Cache]]] = {
    "llama": _plain,
    "gpt-oss": _gpt_oss,
    "glm-dsa": _glm_dsa,
    "deepseek4": _deepseek4,
    "qwen35moe": _qwen35moe,
}
"""Architectures whose caches are computed; of another the plan says that it is not known."""
