"""Remove what the lab left on an engine, by label: containers, networks, volumes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import docker
import requests
from docker.errors import APIError, NotFound

from lab.owner import CASE, KEEP, OWNER, RUN, Owner

Gone = (NotFound, APIError)


def sweep_owner(client: docker.DockerClient, owner: str) -> int:
    """Remove everything of one process; how many things there were."""
    return _remove(client, f"{OWNER}={owner}", lambda labels: KEEP not in labels)


def sweep_case(client: docker.DockerClient, labels: dict[str, str]) -> int:
    """Remove everything of one case; how many things there were."""
    run, case = labels[RUN], labels[CASE]
    return _remove(client, f"{RUN}={run}", lambda found: found.get(CASE) == case)


def sweep_stale(client: docker.DockerClient, *, kept: bool = False) -> int:
    """Remove everything whose owner no longer lives; how many things there were.

    Args:
        kept: also what `--keep` left up on purpose.

    Runs of labs that are still at work, here or on other hosts, are left alone.
    """

    def stale(labels: dict[str, str]) -> bool:
        if KEEP in labels and not kept:
            return False
        owner = Owner.parse(labels.get(OWNER, ""))
        return owner is None or not owner.lives()

    return _remove(client, RUN, stale)


def _remove(
    client: docker.DockerClient, label: str, wanted: Callable[[dict[str, str]], bool]
) -> int:
    """Containers first: a network or a volume in use cannot be removed."""
    query = {"label": label}
    # The low-level API gives each list in one call; the objects of the high-level one are
    # inspected one by one, and one that vanishes meanwhile is an error.
    kinds: list[tuple[list[dict[str, Any]], str, Callable[[str], Any]]] = [
        (
            client.api.containers(all=True, filters=query),
            "Id",
            lambda key: client.api.remove_container(key, force=True, v=True),
        ),
        (client.api.networks(filters=query), "Id", client.api.remove_network),
        (
            client.api.volumes(filters=query)["Volumes"] or [],
            "Name",
            lambda key: client.api.remove_volume(key, force=True),
        ),
    ]
    count = 0
    for things, key, remove in kinds:
        ids = [thing[key] for thing in things if wanted(thing.get("Labels") or {})]
        count += len(ids)
        if ids:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(_quietly(remove), ids))
    return count


def _quietly(remove: Callable[[str], Any]) -> Callable[[str], None]:
    """Removal by someone else at the same moment is as good as ours; the caller looks again."""

    def call(key: str) -> None:
        with contextlib.suppress(*Gone, requests.RequestException):
            remove(key)

    return call
