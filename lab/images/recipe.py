"""What an image is made from: each input's hash, kept in the image's labels."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab import __version__
from lab.flavours import Flavour, folder, load_flavour
from lab.images.base import TAG as BASE
from lab.images.types import ImageSpec
from lab.pins import Pin, get_pin
from lab.sources import Kind, Tree, describe
from lab.variants import Variant, digest, load_variant, variant_file

KEY = "rpclab.key"
SOURCE = "rpclab.source"
SOURCE_ID = "rpclab.source-id"
BUILD = "rpclab.build"
INPUT = "rpclab.input."


@dataclass(frozen=True)
class Recipe:
    """Everything named in an image's name, read and checked; nothing fetched."""

    spec: ImageSpec
    pin: Pin
    flavour: Flavour
    dockerfile: Path
    variant: Variant | None
    variant_path: Path | None

    @classmethod
    def of(cls, spec: ImageSpec) -> Recipe:
        """Raises `InputError` for an unknown pin, flavour or variant, or a broken file."""
        pin = get_pin(spec.pin)
        path = variant_file(spec.variant) if spec.variant else None
        return cls(
            spec,
            pin,
            load_flavour(spec.flavour),
            folder(spec.flavour) / "Dockerfile",
            load_variant(path) if path else None,
            path,
        )

    @property
    def on(self) -> ImageSpec | None:
        """The image that this one is built on, where its flavour adds to another."""
        return dataclasses.replace(self.spec, flavour=self.flavour.on) if self.flavour.on else None

    def inputs(
        self, base: str | None, tree_hash: str | None, on: str | None = None
    ) -> dict[str, str]:
        """Every input that is known now, by the name that a reason to rebuild gives it.

        Args:
            base, on: ids of the base image and of the image that this one is built on.
        """
        ignore = self.dockerfile.with_name("Dockerfile.dockerignore")
        known = {
            "Dockerfile": _hash(self.dockerfile.read_bytes()),
            "dockerignore": _hash(ignore.read_bytes() if ignore.is_file() else b""),
            "variant": digest(self.variant) if self.variant else "none",
            "base image": base,
            "source tree": tree_hash,
            f"{self.flavour.on} image": on,
            "folder": self._own_files(),
        }
        return {name: value for name, value in known.items() if value is not None}

    def arguments(self, tree: Tree) -> dict[str, str]:
        """The Dockerfile's arguments: what the binaries will say that they are."""
        known = {"BASE": BASE, "BUILD": str(tree.origin.build), "COMMIT": tree.origin.kind}
        return known | ({"ON": self.on.tag} if self.on else {})

    def labels(self, tree: Tree, base: str, on: str | None = None) -> dict[str, str]:
        """The image's labels: what it is, and each input's hash."""
        inputs = self.inputs(base, tree.hash, on)
        return {
            "rpclab.pin": self.pin.id,
            BUILD: str(tree.origin.build),
            SOURCE: tree.origin.kind,
            SOURCE_ID: tree.origin.id,
            "rpclab.commit": tree.origin.commit,
            "rpclab.description": describe(self.pin, tree.origin.kind, tree.origin.build),
            "rpclab.flavour": self.spec.flavour,
            "rpclab.variant": self.spec.variant or "",
            "rpclab.version": __version__,
            KEY: key(inputs | {SOURCE_ID: tree.origin.id}),
            **{INPUT + name.replace(" ", "-"): value for name, value in inputs.items()},
        }

    def _own_files(self) -> str | None:
        """One hash of the flavour's folder, where the image is built from it."""
        if self.flavour.context != "folder":
            return None
        home = self.dockerfile.parent
        files = sorted(path for path in home.rglob("*") if path.is_file())
        lines = (f"{path.relative_to(home)} {_hash(path.read_bytes())}\n" for path in files)
        return _hash("".join(lines).encode())


def changed(labels: Mapping[str, str], inputs: Mapping[str, str]) -> list[str]:
    """Which of `inputs` the image with these labels was not made from."""
    return [k for k, v in inputs.items() if labels.get(INPUT + k.replace(" ", "-")) != v]


def key(inputs: Mapping[str, str]) -> str:
    """One short hash of all inputs."""
    return _hash("\n".join(f"{k}={v}" for k, v in sorted(inputs.items())).encode())[:16]


def kind_of(labels: Mapping[str, str]) -> Kind | None:
    """The kind of source of an image of the lab's."""
    match labels.get(SOURCE):
        case "git":
            return "git"
        case "sdist":
            return "sdist"
    return None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
