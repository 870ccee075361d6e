"""The llama.cpp commits that the lab knows: `images/pins.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from lab import paths, toml
from lab.errors import InputError

ID_LENGTH = 9


class Sdist(toml.Strict):
    """A release of the Python package that carries a whole llama.cpp tree."""

    build: Annotated[int, Field(gt=0, strict=True)]
    why: Annotated[str, Field(min_length=1)]


class Pin(toml.Strict):
    """One commit, what it stands for, and what may stand in for it."""

    id: Annotated[str, Field(pattern=rf"^[0-9a-f]{{{ID_LENGTH}}}$")]
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{9,40}$")]
    build: Annotated[str, Field(pattern=r"^b\d+(\.\.b\d+)?$")]
    role: Literal["affected", "fixed"]
    about: Annotated[str, Field(min_length=1)]
    used: Annotated[bool, Field(strict=True)] = False
    sdist: Sdist | None = None

    @model_validator(mode="after")
    def _id_is_the_short_hash(self) -> Pin:
        if not self.commit.startswith(self.id):
            raise ValueError(f"commit {self.commit} does not begin with the pin's id {self.id}")
        first, _, last = self.build.replace("b", "").partition("..")
        if last and int(last) < int(first):
            raise ValueError(f"build {self.build} ends before it begins")
        return self


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
    path = path or paths.IMAGES / "pins.toml"
    pins = load_pins(path)
    if pin not in pins:
        raise InputError(toml.unknown("pin", pin, list(pins)), where=str(path))
    return pins[pin]
