"""Faults of storage: the directory in which a worker keeps tensors (`ggml-rpc-server -c`).

They are done inside the node by its own user, so that they may begin at any moment. The directory
lies in the node's only writable place, a small file system in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lab.errors import LabError
from lab.faults import acts
from lab.faults.base import Fault, Ground

if TYPE_CHECKING:
    from lab.topology import Topology

FLAGS = ("-c", "--cache")
WRITABLE = "/tmp"  # noqa: S108 - inside the node
DIRECTORY = "$LLAMA_CACHE/rpc"
"""Where the worker keeps them, as a shell in the node sees it."""
FILL = "$LLAMA_CACHE/rpclab-fill"


class Storage(Fault):
    """A fault of a worker's cache directory."""

    def unavailable(self, ground: Ground) -> str | None:
        """See `Fault`: the worker must keep a cache, where it can."""
        if not any(flag in ground.worker_args for flag in FLAGS):
            return 'the workers keep no cache: worker_args = [..., "-c"]'
        if not ground.env.get("LLAMA_CACHE", "").startswith(f"{WRITABLE}/"):
            return (
                f'a node can write below {WRITABLE} only: env = {{ LLAMA_CACHE = "{WRITABLE}/c" }}'
            )
        return super().unavailable(ground)


class CacheReadOnly(Storage):
    """Nothing can be added to the directory."""

    kind: Literal["cache-read-only"]

    def begin(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        acts.shell(topology, target, f'mkdir -p "{DIRECTORY}" && chmod a-w "{DIRECTORY}"')
        return _expect_writable(topology, target, False)

    def end(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        acts.shell(topology, target, f'chmod u+w "{DIRECTORY}"')
        return _expect_writable(topology, target, True)


class CacheFull(Storage):
    """The file system that the directory lies on has no space left."""

    kind: Literal["cache-full"]

    def begin(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        acts.shell(
            topology, target, f'mkdir -p "{DIRECTORY}"; cat /dev/zero >"{FILL}" 2>/dev/null; true'
        )
        return _expect_free(topology, target, False)

    def end(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        acts.shell(topology, target, f'rm "{FILL}"')
        return _expect_free(topology, target, True)


class CacheTruncated(Storage):
    """Each file that is there loses its second half."""

    kind: Literal["cache-truncated"]
    lasts: ClassVar[bool] = False

    def begin(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        before = _sizes(topology, target)
        if not before:
            raise LabError(f"{target} has no file in its cache that could be truncated")
        acts.shell(
            topology,
            target,
            f'for f in "{DIRECTORY}"/*; do truncate -s $(($(stat -c %s "$f") / 2)) "$f"; done',
        )
        after = _sizes(topology, target)
        if after != {name: size // 2 for name, size in before.items()}:
            raise LabError(f"truncating {before} gave {after}", where=target)
        return {"before": before, "after": after}


def _sizes(topology: Topology, target: str) -> dict[str, int]:
    lines = acts.shell(topology, target, f'stat -c "%n %s" "{DIRECTORY}"/* 2>/dev/null; true')
    found = (line.rsplit(" ", 1) for line in lines.splitlines())
    return {name.rpartition("/")[2]: int(size) for name, size in found}


def _expect_writable(topology: Topology, target: str, wanted: bool) -> dict[str, Any]:
    test = f'touch "{DIRECTORY}/x" 2>/dev/null && rm "{DIRECTORY}/x" && echo yes || echo no'
    found = acts.shell(topology, target, test).strip() == "yes"
    if found != wanted:
        raise LabError(f"the cache directory: writable is {found}, not {wanted}", where=target)
    return {"writable": found}


def _expect_free(topology: Topology, target: str, wanted: bool) -> dict[str, Any]:
    kib = int(acts.shell(topology, target, 'df --output=avail "$LLAMA_CACHE" | tail -n 1'))
    if (kib > 0) != wanted:
        raise LabError(f"the cache's file system has {kib} KiB left", where=target)
    return {"free_kib": kib}
