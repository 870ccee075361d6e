"""Devices and their memory: `RPC0=host:port,120G`, or what `--list-devices` prints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lab.errors import InputError

GIVEN = re.compile(
    r"(?P<name>[A-Za-z]+\d+)=(?P<endpoint>[^\s,=:]+:\d+)"
    r",(?P<size>\d+(?:\.\d+)?)(?P<unit>[MGT])(?:,topk=(?P<topk>\d+))?"
)
PRINTED = re.compile(r"^\s*(RPC\d+): (\S+:\d+) \((\d+) MiB, (\d+) MiB free\)", re.MULTILINE)
UNITS = {"M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Device:
    """`memory` in bytes; `top_k`: the widest row that its TOP_K takes, None for no limit."""

    name: str
    endpoint: str
    memory: int
    top_k: int | None = None

    @property
    def buffer(self) -> str:
        """The name of its buffer type, which `-ot` wants and logs show."""
        return f"RPC0[{self.endpoint}]"


def parse(words: list[str]) -> list[Device]:
    """The devices, in the head's order. A word is a device, or the file of a printed list.

    Raises:
        InputError: a word that is neither, no device, or the same name twice.
    """
    devices = [device for word in words for device in _devices(word)]
    names = [device.name for device in devices]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"{min(twice)} is given twice", where="--device")
    if not devices:
        raise InputError(
            "no device", where="--device", hint="give --device RPC0=host:port,120G for each"
        )
    return devices


def _devices(word: str) -> list[Device]:
    if found := GIVEN.fullmatch(word):
        memory = int(float(found["size"]) * UNITS[found["unit"]])
        limit = int(found["topk"]) if found["topk"] else None
        return [Device(found["name"], found["endpoint"], memory, limit)]
    path = Path(word)
    if path.is_file():
        rows = PRINTED.findall(path.read_text(errors="replace"))
        if rows:
            return [Device(name, at, int(free) * 2**20) for name, at, _, free in rows]
        raise InputError("no device of a --list-devices output in it", where=word)
    raise InputError(
        f"{word!r} is no device",
        where="--device",
        hint="NAME=host:port,SIZE like RPC0=10.0.0.2:50052,120G (M, G or T; ,topk=1024 for a"
        " device with a limit), or the file of a head's --list-devices",
    )
