"""The words of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import docker
from docker.errors import ImageNotFound

REPOSITORY = "rpclab/llama.cpp"


@dataclass(frozen=True)
class Image:
    """An image that is on the engine."""

    tag: str
    id: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def ref(self) -> str:
        """What to start a container from: the id, since a tag can move meanwhile."""
        return self.id


@dataclass(frozen=True, order=True)
class ImageSpec:
    """Which image: pin x flavour x variant."""

    pin: str
    flavour: str = "cpu"
    variant: str | None = None

    @property
    def name(self) -> str:
        """`f1793c1c4-cpu-offload-false`: in tables, command lines and tags."""
        return "-".join(filter(None, (self.pin, self.flavour, self.variant)))

    @property
    def tag(self) -> str:
        """The image's tag on the engine."""
        return f"{REPOSITORY}:{self.name}"


def find(client: docker.DockerClient, tag: str) -> Image | None:
    """The image of this tag on the engine, or None."""
    try:
        found = client.images.get(tag)
    except ImageNotFound:
        return None
    return Image(tag, str(found.id), dict(found.labels))
