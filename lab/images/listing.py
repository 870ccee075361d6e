"""Every image that there is or could be, and its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from docker.errors import ImageNotFound

from lab import toml
from lab.engine import client as connect
from lab.errors import InputError
from lab.flavours import flavours
from lab.images import times
from lab.images.llama import why_rebuild
from lab.images.recipe import BUILD, KEY, SOURCE
from lab.images.types import REPOSITORY, ImageSpec, find
from lab.pins import load_pins

State = Literal["built", "stale", "missing"]


@dataclass(frozen=True)
class Entry:
    """One image."""

    name: str
    pin: str
    flavour: str
    variant: str | None
    build: str
    """What is built; for a missing image what upstream calls the pin."""
    source: str
    state: State
    why: str
    """Why it would be built."""
    megabytes: int | None
    time: times.Time | None
    """How long the build took, where it was on this machine."""


def parse(name: str) -> ImageSpec:
    """`f1793c1c4`, `f1793c1c4-cpu` or `f1793c1c4-cpu-offload-false`.

    Raises:
        InputError: no such pin or flavour; says which there are.
    """
    pin, _, rest = name.partition("-")
    flavour, _, variant = rest.partition("-")
    if pin not in (pins := load_pins()):
        raise InputError(toml.unknown("pin", pin, list(pins)), where=name)
    if flavour and flavour not in flavours():
        raise InputError(toml.unknown("flavour", flavour, flavours()), where=name)
    return ImageSpec(pin, flavour or "cpu", variant or None)


def used() -> list[ImageSpec]:
    """The images of the pins that are in use, for processors."""
    return [ImageSpec(pin.id) for pin in load_pins().values() if pin.used]


def entries() -> list[Entry]:
    """Every pin's plain images, and every variant that is built."""
    engine = connect()
    specs = [ImageSpec(pin, flavour) for pin in load_pins() for flavour in flavours()]
    tags = (tag for image in engine.images.list(REPOSITORY) for tag in image.tags)
    for tag in sorted(tag for tag in tags if tag.startswith(f"{REPOSITORY}:")):
        try:
            spec = parse(tag.removeprefix(f"{REPOSITORY}:"))
        except InputError:
            continue  # Of a pin or flavour that this checkout does not have.
        if spec not in specs:
            specs.append(spec)
    return [entry(spec) for spec in sorted(specs, key=lambda s: (s.flavour, _order(s)))]


def entry(spec: ImageSpec) -> Entry:
    """The state of one image."""
    engine = connect()
    pin = load_pins()[spec.pin]
    image = find(engine, spec.tag)
    try:
        why = why_rebuild(spec) or ""
    except InputError as error:
        why = error.what  # A variant whose file is gone, or broken.
    if image is None:
        return Entry(
            spec.name, spec.pin, spec.flavour, spec.variant, pin.build, "", "missing", why, None,
            None,
        )  # fmt: skip
    try:
        size = int(engine.images.get(image.id).attrs["Size"]) // 1_000_000
    except ImageNotFound:
        size = None
    return Entry(
        name=spec.name,
        pin=spec.pin,
        flavour=spec.flavour,
        variant=spec.variant,
        build=f"b{image.labels.get(BUILD, '?')}",
        source=image.labels.get(SOURCE, "?"),
        state="stale" if why else "built",
        why=why,
        megabytes=size,
        time=times.of(spec.name, image.labels.get(KEY, "")),
    )


def _order(spec: ImageSpec) -> tuple[int, str]:
    return (list(load_pins()).index(spec.pin), spec.variant or "")
