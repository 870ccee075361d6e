"""The placement flags, as llama.cpp spells them."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import NoReturn

from lab.errors import InputError

CACHE_TYPES: dict[str, float] = {
    "f32": 4, "f16": 2, "bf16": 2, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32,
    "q4_1": 20 / 32, "q4_0": 18 / 32, "iq4_nl": 18 / 32,
}  # fmt: skip
"""Type of a cache -> bytes of an element."""

EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"


@dataclass(frozen=True)
class Flags:
    """What the head is told. `layers` None: `-ngl` left out; `split` (): by memory."""

    layers: int | None
    split: tuple[float, ...]
    mode: str
    overrides: tuple[tuple[str, str], ...]
    kv_offload: bool
    context: int
    slots: int
    key_bytes: float
    value_bytes: float


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message, where="flags", hint="spell flags as llama-server does")


def parse(words: list[str]) -> Flags:
    """Read the flags.

    Raises:
        InputError: an unknown flag or a value that cannot be.
    """
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("-ngl", "--n-gpu-layers", "--gpu-layers", dest="ngl", default="auto")
    parser.add_argument("-ts", "--tensor-split", dest="ts", default="")
    parser.add_argument(
        "-sm", "--split-mode", dest="sm", default="layer", choices=["none", "layer"]
    )
    parser.add_argument("-ot", "--override-tensor", dest="ot", action="append", default=[])
    parser.add_argument("-ncmoe", "--n-cpu-moe", dest="ncmoe", type=int, default=0)
    parser.add_argument("-cmoe", "--cpu-moe", dest="cmoe", action="store_true")
    parser.add_argument("-nkvo", "--no-kv-offload", dest="nkvo", action="store_true")
    parser.add_argument("-c", "--ctx-size", dest="c", type=int, default=0)
    parser.add_argument("-np", "--parallel", dest="np", type=int, default=1)
    parser.add_argument("-ctk", "--cache-type-k", dest="ctk", default="f16", choices=CACHE_TYPES)
    parser.add_argument("-ctv", "--cache-type-v", dest="ctv", default="f16", choices=CACHE_TYPES)
    got = parser.parse_args(words)
    overrides = [_override(item) for value in got.ot for item in value.split(",")]
    overrides += [(rf"blk\.{n}{EXPERTS}", "CPU") for n in range(got.ncmoe)]
    overrides += [(EXPERTS, "CPU")] if got.cmoe else []
    return Flags(
        layers=_layers(got.ngl),
        split=_split(got.ts),
        mode=got.sm,
        overrides=tuple(overrides),
        kv_offload=not got.nkvo,
        context=_positive("-c", got.c, 0),
        slots=_positive("-np", got.np, 1),
        key_bytes=CACHE_TYPES[got.ctk],
        value_bytes=CACHE_TYPES[got.ctv],
    )


def _layers(word: str) -> int | None:
    if word in ("auto", "all", "-1"):
        return None
    if not word.isdigit():
        raise InputError(f"{word!r} is no number of layers", where="-ngl")
    return int(word)


def _split(word: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(part) for part in re.split("[,/]", word) if part)
    except ValueError:
        raise InputError(f"{word!r} is no list of shares like 3,4", where="-ts") from None
    if any(share < 0 for share in shares) or (shares and not sum(shares)):
        raise InputError(f"{word!r}: shares are not negative and not all 0", where="-ts")
    return shares


def _override(item: str) -> tuple[str, str]:
    pattern, equals, target = item.partition("=")
    if not equals or not target:
        raise InputError(f"{item!r} is not PATTERN=BUFFER_TYPE", where="-ot")
    try:
        re.compile(pattern)
    except re.error as error:
        raise InputError(f"{pattern!r} is no regular expression: {error}", where="-ot") from None
    return pattern, target


def _positive(flag: str, value: int, least: int) -> int:
    if value < least:
        raise InputError(f"{value} is less than {least}", where=flag)
    return value
