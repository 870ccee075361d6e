"""Take an image from a hub, where one answers soon."""

from __future__ import annotations

import docker
import requests
from docker.errors import DockerException

from lab.engine import client as connect
from lab.images.types import Image, find
from lab.progress import Progress

TIMEOUT = 15
"""Seconds without a byte from the engine after which the hub counts as unreachable."""


class NotPulledError(Exception):
    """The hub does not answer, or does not have the image; the text is the engine's."""


def pull(client: docker.DockerClient, source: str, tag: str, progress: Progress) -> Image:
    """Pull `source` and tag it `tag`.

    Raises:
        NotPulledError: it cannot be had from there, or not soon.
    """
    api = connect(timeout=TIMEOUT).api
    try:
        with progress.step(f"pulling {source}") as update:
            for event in api.pull(source, stream=True, decode=True):
                if "error" in event:
                    raise NotPulledError(event["error"])
                update(str(event.get("status", "")))
        repository, _, version = tag.partition(":")
        client.images.get(source).tag(repository, tag=version)
    except (DockerException, requests.RequestException) as error:
        raise NotPulledError(str(error)) from error
    image = find(client, tag)
    if image is None:
        raise NotPulledError(f"the engine did not tag it {tag}")
    return image


def same_source(client: docker.DockerClient, image: Image, source: str) -> bool:
    """Whether the image is the one that `source` names on the engine."""
    other = find(client, source)
    return other is not None and other.id == image.id
