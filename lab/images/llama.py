"""The llama.cpp images: built only when one of their inputs changed."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path

import docker
from docker.errors import APIError

from lab import paths
from lab.engine import client as connect
from lab.errors import LabError
from lab.images import times
from lab.images.base import TAG as BASE
from lab.images.base import ensure_base
from lab.images.dockerfile import docker_build
from lab.images.recipe import KEY, SOURCE_ID, Recipe, changed, kind_of
from lab.images.types import Image, ImageSpec, find
from lab.lock import only_one
from lab.progress import Progress
from lab.sources import Kind, Tree, choose, fetch, known, name_of
from lab.variants import copy_with

CACHE_MOUNT = "id=rpclab-ccache"
"""In the Dockerfiles' compiling step, and in no other."""


def ensure(
    spec: ImageSpec,
    *,
    source: str | None = None,
    progress: Progress | None = None,
    force: bool = False,
) -> Image:
    """The image, built first where it is missing or one of its inputs changed.

    Args:
        source: `git` or `sdist`; without it an image that is there keeps its source, and a new
            one takes git where the upstream repository answers.
        force: build even so, and compile anew (the compiler cache stays).

    Raises:
        InputError: an unknown name, or a broken pin or variant file.
        NoEngineError: no engine answers.
        LabError: the source cannot be had, or the build failed.
    """
    recipe = Recipe.of(spec)
    progress = progress or Progress()
    engine = connect()
    image = find(engine, spec.tag)
    if image and not force and _why(engine, recipe, image, source) is None:
        return image
    if recipe.on:
        on = ensure(recipe.on, source=source, progress=progress)
        source = source or kind_of(on.labels)
    # One compile of llama.cpp at a time on a machine: it takes every core.
    with only_one("compile" if recipe.flavour.context == "source" else spec.name, progress):
        image = find(engine, spec.tag)
        why = _why(engine, recipe, image, source)
        if image and why is None and not force:
            return image
        progress.say(f"building {spec.name}: {why or 'as asked for'}")
        kind = _kind(recipe, image, source)
        return _build(engine, recipe, image, kind, progress, force)


def why_rebuild(spec: ImageSpec, *, source: str | None = None) -> str | None:
    """Why `ensure` would build: "no image", "Dockerfile changed", ...; None where it would not."""
    engine = connect()
    return _why(engine, Recipe.of(spec), find(engine, spec.tag), source)


def _why(
    engine: docker.DockerClient, recipe: Recipe, image: Image | None, source: str | None
) -> str | None:
    if image is None:
        return "no image"
    kind = kind_of(image.labels)
    if kind is None or KEY not in image.labels:
        return "the image is not one of the lab's"
    if recipe.on and (why := why_rebuild(recipe.on, source=source)):
        return f"{recipe.on.name}: {why}"
    if source is not None and source != kind:
        return f"it was built from {kind}, and {choose(recipe.pin, source)} is asked for"
    if image.labels.get(SOURCE_ID) != _source_id(recipe, kind):
        return f"source is now {_source_id(recipe, kind)}, was {image.labels.get(SOURCE_ID)}"
    # An input that is not on this machine now (a cache emptied, a base image removed) cannot have
    # changed; it is looked at when something else asks for a build.
    base = find(engine, BASE)
    on = find(engine, recipe.on.tag) if recipe.on else None
    tree = known(recipe.pin, kind)
    inputs = recipe.inputs(
        base.id if base else None, tree.hash if tree else None, on.id if on else None
    )
    names = changed(image.labels, inputs)
    return f"{', '.join(names)} changed" if names else None


def _kind(recipe: Recipe, image: Image | None, source: str | None) -> Kind:
    """The source that was asked for, else that of the image that is there, else a new choice."""
    kind = kind_of(image.labels) if image else None
    if source is None and kind and (kind == "git" or recipe.pin.sdist):
        return kind
    return choose(recipe.pin, source)


def _source_id(recipe: Recipe, kind: Kind) -> str:
    if kind == "sdist" and recipe.pin.sdist is None:
        return "no sdist"
    return f"{kind}-{name_of(recipe.pin, kind)}"


def _build(
    engine: docker.DockerClient,
    recipe: Recipe,
    old: Image | None,
    kind: Kind,
    progress: Progress,
    force: bool,
) -> Image:
    base = ensure_base(progress)
    tree = fetch(recipe.pin, kind, progress)
    on = find(engine, recipe.on.tag) if recipe.on else None
    labels = recipe.labels(tree, base.id, on.id if on else None)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=tree.path.parent.parent, prefix=".edited.") as folder:
        cached = docker_build(
            recipe.dockerfile,
            _context(recipe, tree, Path(folder)),
            tag=recipe.spec.tag,
            labels=labels,
            # Not --no-cache: that would start a new compiler cache in place of the old one.
            args=recipe.arguments(tree) | ({"FORCE": str(time.time())} if force else {}),
            log=paths.cache() / "logs" / f"{recipe.spec.name}.log",
            title=f"building {recipe.spec.name}",
            progress=progress,
        )
    image = find(engine, recipe.spec.tag)
    if image is None or image.labels.get(KEY) != labels[KEY]:
        raise LabError(
            "the build ended well, but its image is not on the engine",
            where=recipe.spec.tag,
            hint="docker CLI and engine may not be the same one: check `docker context ls`",
        )
    compiled = not any(CACHE_MOUNT in step for step in cached)
    times.record(recipe.spec.name, labels[KEY], time.monotonic() - start, compiled)
    if old and old.id != image.id:
        # Without its tag it is only in the way; containers that still use it keep it.
        with contextlib.suppress(APIError):
            engine.images.remove(old.id)
    return image


def _context(recipe: Recipe, tree: Tree, folder: Path) -> Path:
    if recipe.flavour.context == "folder":
        return recipe.dockerfile.parent
    if recipe.variant is None or recipe.variant_path is None:
        return tree.path
    copy_with(recipe.variant, recipe.variant_path, tree.path, folder / "edited")
    return folder / "edited"
