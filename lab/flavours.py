"""Flavours: the ggml backends that images are built with. One folder of `images/` each:

images/<flavour>/
    Dockerfile      how it is built
    flavour.toml    what the lab must know of it (`Flavour`)
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from lab import paths, toml
from lab.errors import InputError

FILE = "flavour.toml"


class Flavour(toml.Strict, strict=True):
    """What the lab must know of a flavour."""

    about: Annotated[str, Field(min_length=1)]
    on: str | None = None
    """The flavour whose image of the same pin and variant this one is built on (`ARG ON`)."""
    context: Literal["source", "folder"] = "source"
    """What its Dockerfile copies from: llama.cpp's tree, or the flavour's own folder."""
    device: str | None = None
    """What a worker offers (`ggml-rpc-server -d`); without it, what it offers by default."""
    cache: Annotated[str, Field(pattern=r"^/")] | None = None
    """A directory in the container that is kept from case to case: compiled shaders, say."""
    simulated: bool = False
    """Its device is none: results say so."""


def flavours() -> list[str]:
    """All flavours, sorted."""
    return sorted(path.parent.name for path in paths.IMAGES.glob(f"*/{FILE}"))


def folder(name: str) -> Path:
    """The folder of a flavour. Raises `InputError` with the names that there are."""
    if name not in flavours():
        raise InputError(toml.unknown("flavour", name, flavours()), where=str(paths.IMAGES))
    return paths.IMAGES / name


def load_flavour(name: str) -> Flavour:
    """The flavour of this name.

    Raises:
        InputError: no such flavour; or file, field, what is wrong, what is allowed.
    """
    file = folder(name) / FILE
    flavour = toml.load(file, Flavour)
    if flavour.on is not None and (flavour.on == name or flavour.on not in flavours()):
        others = [other for other in flavours() if other != name]
        raise InputError(f"on: {toml.unknown('flavour', flavour.on, others)}", where=str(file))
    return flavour
