"""Where llama.cpp's source comes from, and what may be said about what was built from it."""

from __future__ import annotations

import functools

from lab import toml
from lab.errors import InputError, LabError
from lab.lock import only_one
from lab.pins import Pin
from lab.progress import Progress
from lab.sources import git
from lab.sources.tree import KINDS, Kind, Origin, Tree, cached, checked, store

__all__ = ["KINDS", "Kind", "Origin", "Tree", "choose", "describe", "fetch", "known", "name_of"]


def choose(pin: Pin, forced: str | None = None) -> Kind:
    """The kind of source to build `pin` from: `forced`, else git where it answers, else sdist.

    Raises:
        InputError: no such kind.
        LabError: the pin has no source that can be used here.
    """
    if forced is not None:
        kind = next((k for k in KINDS if k == forced), None)
        if kind is None:
            raise InputError(toml.unknown("source", forced, list(KINDS)), where="--source")
        name_of(pin, kind)
        return kind
    if git_reachable(git.url()):
        return "git"
    if pin.sdist:
        return "sdist"
    raise LabError(
        f"{git.url()} does not answer, and no sdist stands in for {pin.id}",
        where=f"pin {pin.id}",
        hint="name one in images/pins.toml",
    )


def fetch(pin: Pin, kind: Kind, progress: Progress) -> Tree:
    """The source tree, from the cache where it is there unchanged.

    Raises:
        LabError: it can not be had.
    """
    name = name_of(pin, kind)
    with only_one(f"source {kind}-{name}", progress):
        tree = checked(kind, name)
        if tree:
            return tree
        if cached(kind, name):
            progress.say(f"the cached source {kind}-{name} was changed: fetching it anew")
        with progress.step(f"fetching the source {kind}-{name}") as update:
            if kind == "git":
                return store(kind, name, lambda to: git.fetch(name, pin.commit, to, update))
            # Imported where a download is due: it takes a third of a second, and each process of
            # a run would pay it.
            from lab.sources import sdist

            build = int(name)
            return store(kind, name, lambda to: sdist.fetch(build, to, update))


def known(pin: Pin, kind: Kind) -> Tree | None:
    """The cached tree, unchecked; None where nothing is cached."""
    return cached(kind, name_of(pin, kind))


def name_of(pin: Pin, kind: Kind) -> str:
    """What the source calls this pin. Raises `InputError` where it does not have it."""
    if kind == "git":
        return pin.id
    if pin.sdist is None:
        raise InputError("no sdist stands in for it", where=f"pin {pin.id}")
    return str(pin.sdist.build)


def describe(pin: Pin, kind: Kind, build: int) -> str:
    """What ran, for results: the build and its source, and the pin only as far as it is true."""
    if kind == "git":
        return f"b{build} (git {pin.id})"
    relation = "the build of" if pin.build == f"b{build}" else "stands in for"
    return f"b{build} (sdist, {relation} {pin.id})"


@functools.cache
def git_reachable(url: str) -> bool:
    """Whether the upstream repository answers; asked once per process."""
    return git.reachable(url)
