"""Take an image from a hub, where one answers soon."""

from __future__ import annotations

import docker
import requests
from docker.errors import DockerException

from lab.engine import client as connect
from lab.errors import LabError
from lab.images.types import Image, find
from lab.progress import Progress

TIMEOUT = 15
"""Seconds without a byte from the engine after which the hub counts as unreachable."""


def pull(client: docker.DockerClient, source: str, tag: str, progress: Progress) -> Image | None:
    """Pull `source` and tag it `tag`; None where its hub does not answer or has no such image."""
    api = connect(timeout=TIMEOUT).api
    try:
        with progress.step(f"pulling {source}") as update:
            for event in api.pull(source, stream=True, decode=True):
                if "error" in event:
                    return None
                update(str(event.get("status", "")))
    except (DockerException, requests.RequestException):
        return None
    repository, _, version = tag.partition(":")
    if not client.api.tag(source, repository, tag=version):
        raise LabError(f"the engine did not tag {source} as {tag}")
    return find(client, tag)


def same_source(client: docker.DockerClient, image: Image, source: str) -> bool:
    """Whether the image is the one that `source` names on the engine."""
    other = find(client, source)
    return other is not None and other.id == image.id
