"""A llama-server command line: the flags that place something, and those that do not."""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.errors import InputError

CACHE_TYPES: dict[str, float] = {
    "f32": 4, "f16": 2, "bf16": 2, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32,
    "q4_1": 20 / 32, "q4_0": 18 / 32, "iq4_nl": 18 / 32,
}  # fmt: skip
"""Type of a cache -> bytes of an element."""

UNQUANTISED = ("f32", "f16", "bf16")
BLOCK = 32
"""Elements to a block of every quantised cache type."""

EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
DENSE = r"\.ffn_(up|down|gate)\."

OWN: dict[str, tuple[str, ...]] = {
    "layers": ("-ngl", "--n-gpu-layers", "--gpu-layers"),
    "split": ("-ts", "--tensor-split"),
    "mode": ("-sm", "--split-mode"),
    "main": ("-mg", "--main-gpu"),
    "devices": ("-dev", "--device"),
    "override": ("-ot", "--override-tensor"),
    "cpu-experts": ("-ncmoe", "--n-cpu-moe"),
    "cpu-dense": ("-ncffn", "--n-cpu-ffn"),
    "context": ("-c", "--ctx-size"),
    "slots": ("-np", "--parallel"),
    "batch": ("-b", "--batch-size"),
    "ubatch": ("-ub", "--ubatch-size"),
    "keys": ("-ctk", "--cache-type-k"),
    "values": ("-ctv", "--cache-type-v"),
    "flash": ("-fa", "--flash-attn"),
    "fit": ("-fit", "--fit"),
    "rpc": ("--rpc",),
}
"""What a flag with a value sets -> its spellings."""

SWITCHES: dict[str, tuple[str, str]] = {
    "-nkvo": ("kv", "off"), "--no-kv-offload": ("kv", "off"),
    "-kvo": ("kv", "on"), "--kv-offload": ("kv", "on"),
    "-kvu": ("unified", "on"), "--kv-unified": ("unified", "on"),
    "-no-kvu": ("unified", "off"), "--no-kv-unified": ("unified", "off"),
    "--swa-full": ("swa-full", "on"),
    "-cmoe": ("all-experts", "on"), "--cpu-moe": ("all-experts", "on"),
}  # fmt: skip
"""A flag without a value -> what it sets, and to what."""

SAID: dict[str, tuple[str, ...]] = {
    "the draft model is not counted": ("-md", "--model-draft", "--spec-draft-model", "-hfd"),
    "layers that predict further tokens are not counted": ("--spec-type",),
    "the projector is not counted": ("-mm", "--mmproj", "-mmu", "--mmproj-url"),
    "adapters are not counted": ("--lora", "--lora-scaled", "--control-vector"),
    "--override-kv is not applied": ("--override-kv",),
    "--kv-unified-per-slot is not applied: give -c": ("--kv-unified-per-slot",),
    "the header is read of the file given to rpclab": ("-hf", "-hfr", "--hf-repo", "-mu"),
}
"""A remark on what the plan leaves out -> the flags that call for it."""

FIT = "-fit is on (the default): it may move layers or shorten the context where they do not fit"
AUTO_SLOTS = 4
"""Slots where `-np` is left out; their cache is unified then."""


@dataclass(frozen=True)
class Flags:
    """What the head is told. `layers` None: all, as where `-ngl` is left out; `split` (): by
    memory; `named`: the devices of `--device`, None where it is left out."""

    layers: int | None
    split: tuple[float, ...]
    mode: str
    main: int
    named: tuple[str, ...] | None
    overrides: tuple[tuple[str, str], ...]
    kv_offload: bool
    context: int
    slots: int
    unified: bool
    batch: int
    ubatch: int
    swa_full: bool
    keys: str
    values: str
    flash: str
    endpoints: tuple[str, ...]
    """Of `--rpc`."""
    said: tuple[str, ...] = ()
    """Remarks on what is not counted or assumed."""

    @property
    def key_bytes(self) -> float:
        """Of an element of the keys' cache."""
        return CACHE_TYPES[self.keys]

    @property
    def value_bytes(self) -> float:
        """Of an element of the values' cache."""
        return CACHE_TYPES[self.values]


@functools.cache
def _passed_over() -> dict[str, int]:
    """Flags that place nothing -> how many values each takes."""
    path = Path(__file__).with_name("server_flags.toml")
    table = tomllib.loads(path.read_text())
    counts = {"switches": 0, "one_value": 1, "two_values": 2}
    return {name: count for kind, count in counts.items() for name in table[kind]}


def parse(words: list[str]) -> Flags:
    """Read a command line of llama-server, with its first word or without.

    Raises:
        InputError: an unknown flag or a value that cannot be.
    """
    settings: dict[str, str] = {}
    overrides: list[tuple[str, str]] = []
    said: list[str] = []
    for name, setting, value in _read(words):
        if setting in _OVERRIDES:
            overrides += _OVERRIDES[setting](value)
        elif setting:
            settings[setting] = value
        said += [remark for remark, flags in SAID.items() if name in flags]
    if _one_of("-fit", settings.get("fit", "on"), ("on", "off")) == "on":
        said.append(FIT)
    slots = settings.get("slots", "-1")
    auto = slots == "-1"
    flash = _one_of("-fa", settings.get("flash", "auto"), tuple(FLASH))
    return Flags(
        layers=_layers(settings.get("layers", "auto")),
        split=_split(settings.get("split", "")),
        mode=_one_of("-sm", settings.get("mode", "layer"), ("none", "layer")),
        main=_number("-mg", settings.get("main", "0"), 0),
        named=tuple(settings["devices"].split(",")) if "devices" in settings else None,
        overrides=tuple(overrides),
        kv_offload=settings.get("kv", "on") == "on",
        context=_number("-c", settings.get("context", "0"), 0),
        slots=AUTO_SLOTS if auto else _number("-np", slots, 1),
        unified=auto or settings.get("unified", "off") == "on",
        batch=_number("-b", settings.get("batch", "2048"), 1),
        ubatch=_number("-ub", settings.get("ubatch", "512"), 0),
        swa_full="swa-full" in settings,
        keys=_one_of("-ctk", settings.get("keys", "f16"), tuple(CACHE_TYPES)),
        values=_one_of("-ctv", settings.get("values", "f16"), tuple(CACHE_TYPES)),
        flash=FLASH[flash],
        endpoints=tuple(settings["rpc"].split(",")) if "rpc" in settings else (),
        said=tuple(dict.fromkeys(said)),
    )


FLASH = {"on": "on", "off": "off", "auto": "auto", "1": "on", "0": "off", "-1": "auto"}


def _read(words: list[str]) -> Iterator[tuple[str, str, str]]:
    """Each flag: its name, what it sets ("" for nothing), its value."""
    settings = {name: setting for setting, names in OWN.items() for name in names}
    rest = iter(words)
    for place, word in enumerate(rest):
        name = word.replace("_", "-") if word.startswith("--") else word
        if not word.startswith("-"):
            if place == 0 and Path(word).name.startswith("llama-server"):
                continue
            raise InputError(
                f"{word!r} is no flag", where="flags", hint="quote a value that has blanks in it"
            )
        if name in SWITCHES:
            setting, value = SWITCHES[name]
            yield name, setting, value
        elif name in settings:
            yield name, settings[name], _values(rest, name, 1)[0]
        elif name in _passed_over():
            _values(rest, name, _passed_over()[name])
            yield name, "", ""
        else:
            raise _unknown(name, [*settings, *SWITCHES, *_passed_over()])


def _values(rest: Iterator[str], name: str, count: int) -> list[str]:
    values = [word for _, word in zip(range(count), rest, strict=False)]
    if len(values) < count:
        raise InputError("its value is missing", where=name, hint="spell it as llama-server does")
    return values


def _unknown(name: str, known: list[str]) -> InputError:
    near = difflib.get_close_matches(name, list(dict.fromkeys(known)), n=2)
    guess = f"did you mean {' or '.join(near)}?" if near else "spell it as llama-server --help does"
    return InputError("llama-server has no such flag", where=name, hint=guess)


def _layers(word: str) -> int | None:
    if word in ("auto", "all"):
        return None
    if not re.fullmatch(r"-?\d+", word):
        raise InputError(
            f"{word!r} is no number of layers", where="-ngl", hint="give a number, all or auto"
        )
    return int(word) if int(word) >= 0 else None


def _split(word: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(part) for part in re.split("[,/]+", word)) if word else ()
    except ValueError:
        raise InputError(
            f"{word!r} is no list of shares", where="-ts", hint="give a share a device, as 3,4"
        ) from None
    if any(not 0 <= share < float("inf") for share in shares):
        raise InputError(
            f"{word!r} has a share that is no size", where="-ts", hint="give shares from 0 up"
        )
    return shares


def _override(value: str) -> list[tuple[str, str]]:
    return [_one_override(item) for item in value.split(",")]


def _one_override(item: str) -> tuple[str, str]:
    pattern, equals, target = item.partition("=")
    if not equals or not target:
        raise InputError(
            f"{item!r} is not PATTERN=BUFFER_TYPE",
            where="-ot",
            hint=r"write it as 'blk\.3\..*=RPC0[10.0.0.2:50052]' or '...=CPU'",
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise InputError(
            f"{pattern!r} is no regular expression: {error}", where="-ot", hint="quote its dots"
        ) from None
    return pattern, target


def _first(flag: str, pattern: str, value: str) -> list[tuple[str, str]]:
    return [(rf"blk\.{n}{pattern}", "CPU") for n in range(_number(flag, value, 0))]


# In the order of the command line: the first pattern that matches a tensor places it.
_OVERRIDES: dict[str, Callable[[str], list[tuple[str, str]]]] = {
    "override": _override,
    "cpu-experts": functools.partial(_first, "-ncmoe", EXPERTS),
    "cpu-dense": functools.partial(_first, "-ncffn", DENSE),
    "all-experts": lambda _: [(EXPERTS, "CPU")],
}


def _number(flag: str, word: str, least: int) -> int:
    if not re.fullmatch(r"-?\d+", word):
        raise InputError(f"{word!r} is no number", where=flag, hint="give a whole number")
    if int(word) < least:
        raise InputError(f"{word} is less than {least}", where=flag, hint=f"give {least} or more")
    return int(word)


def _one_of(flag: str, word: str, allowed: tuple[str, ...]) -> str:
    if word not in allowed:
        raise InputError(
            f"{word!r} is not known here", where=flag, hint=f"one of {', '.join(allowed)}"
        )
    return word
