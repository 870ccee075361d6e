"""Images without an engine: names, reasons to rebuild, which CLI builds, how a build ends."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import engine, paths
from lab.errors import Exit, InputError, LabError, NoEngineError
from lab.flavours import flavours
from lab.images import ImageSpec, times
from lab.images.dockerfile import docker_build
from lab.images.listing import parse, used
from lab.images.recipe import KEY, Recipe, changed
from lab.lock import only_one
from lab.progress import Progress
from lab.sources import Origin, Tree

MODERN = 'case "$1" in build) echo "no buildx" >&2; exit 1;; esac'
CAPABLE = 'case "$2" in --help) echo "  --secret stringArray"; exit 0;; esac'


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RPCLAB_CACHE", str(tmp_path / "cache"))
    engine.buildkit_cli.cache_clear()
    yield
    engine.buildkit_cli.cache_clear()


# names


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("f1793c1c4", ImageSpec("f1793c1c4", "cpu")),
        ("f1793c1c4-cpu", ImageSpec("f1793c1c4", "cpu")),
        ("f1793c1c4-cpu-offload-false", ImageSpec("f1793c1c4", "cpu", "offload-false")),
    ],
)
def test_a_name_is_read_and_written_the_same(name: str, spec: ImageSpec) -> None:
    assert parse(name) == spec
    assert parse(spec.name) == spec
    assert spec.tag == f"rpclab/llama.cpp:{spec.name}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("f1793c1c5", r"unknown pin 'f1793c1c5' \(did you mean 'f1793c1c4'\?\)"),
        ("f1793c1c4-cpuu", r"unknown flavour 'cpuu' \(did you mean 'cpu'\?\)"),
        ("f1793c1c4-toxiproxy", "unknown flavour 'toxiproxy'"),
        ("f1793c1c4-cpu-offload", "unknown variant 'offload'"),
    ],
)
def test_a_wrong_name_says_what_there_is(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recipe.of(parse(name))


def test_every_flavour_has_what_a_build_needs() -> None:
    for flavour in flavours():
        text = (paths.IMAGES / flavour / "Dockerfile").read_text()
        assert (paths.IMAGES / flavour / "Dockerfile.dockerignore").is_file()
        # It would pull a frontend from a hub.
        assert "# syntax=" not in text
        assert all(f"ARG {name}" in text for name in ("BASE", "BUILD", "COMMIT", "FORCE"))
    assert used() == [ImageSpec(pin) for pin in ("74ce15741", "f1793c1c4", "1548a240e")]


# reasons to rebuild


def test_the_same_inputs_give_the_same_key_and_no_reason() -> None:
    labels = _recipe().labels(_tree(), "sha256:base")
    assert labels[KEY] == _recipe().labels(_tree(), "sha256:base")[KEY]
    assert changed(labels, _recipe().inputs("sha256:base", "hash")) == []
    assert labels["rpclab.description"] == "b10705 (sdist, stands in for f1793c1c4)"
    assert labels["rpclab.commit"] == ""


@pytest.mark.parametrize("which", ["Dockerfile", "dockerignore", "variant"])
def test_a_changed_input_is_named_and_changes_the_key(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = _recipe().labels(_tree(), "sha256:base")
    if which == "variant":
        other = Recipe.of(ImageSpec("f1793c1c4", "cpu", "offload-false"))
    else:
        shutil.copytree(paths.IMAGES, tmp_path / "images")
        monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
        name = "Dockerfile" if which == "Dockerfile" else "Dockerfile.dockerignore"
        file = paths.IMAGES / "cpu" / name
        file.write_text(file.read_text() + "# more\n")
        other = _recipe()
    assert changed(labels, other.inputs("sha256:base", "hash")) == [which]
    assert other.labels(_tree(), "sha256:base")[KEY] != labels[KEY]


def test_a_changed_base_or_tree_is_named_and_an_unknown_one_is_not() -> None:
    labels = _recipe().labels(_tree(), "sha256:base")
    assert changed(labels, _recipe().inputs("sha256:other", "hash")) == ["base image"]
    assert changed(labels, _recipe().inputs("sha256:base", "other")) == ["source tree"]
    assert changed(labels, _recipe().inputs(None, None)) == []


def test_the_time_of_a_build_belongs_to_its_inputs() -> None:
    times.record("name", "key", 12.34, compiled=False)
    assert str(times.of("name", "key")) == "12.3 s (compiled before)"
    assert times.of("name", "other key") is None
    assert times.of("other", "key") is None


# the docker CLI


def test_a_cli_without_buildkit_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _cli(tmp_path / "first", MODERN)
    second = _cli(tmp_path / "second", CAPABLE)
    monkeypatch.setenv("PATH", f"{first.parent}:{second.parent}:{os.environ['PATH']}")
    assert engine.buildkit_cli() == second


@pytest.mark.parametrize("clis", [[], [MODERN], [MODERN, "echo --progress"]])
def test_no_cli_with_buildkit_is_an_error_with_a_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clis: list[str]
) -> None:
    folders = [str(_cli(tmp_path / str(n), text).parent) for n, text in enumerate(clis)]
    monkeypatch.setattr(os, "get_exec_path", lambda: folders)
    with pytest.raises(LabError, match="no docker CLI here can build") as caught:
        engine.buildkit_cli()
    assert "docker-buildx" in caught.value.hint
    assert all(folder in caught.value.where for folder in folders)


def test_no_engine_has_its_own_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(NoEngineError, match="no container engine answers") as caught:
        engine.client()
    assert caught.value.exit_code is Exit.NO_ENGINE
    assert str(tmp_path) in caught.value.where
    assert "make engine" in caught.value.hint


# a build's end


def test_a_failed_build_gives_its_last_lines_and_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = "for i in $(seq 40); do echo line $i; done; echo broken >&2; exit 1"
    _on_path(_cli(tmp_path / "bin", f"{CAPABLE}\n{noise}"), monkeypatch)
    with pytest.raises(LabError, match="the build failed") as caught:
        _build(tmp_path)
    assert "line 40\n  broken" in str(caught.value)
    assert "line 20\n" not in str(caught.value)
    assert str(tmp_path / "log") in caught.value.hint
    assert "line 20\n" in (tmp_path / "log").read_text()


def test_an_interrupt_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = f"echo $$ > {tmp_path}/pid; echo started; exec sleep 600"
    _on_path(_cli(tmp_path / "bin", f"{CAPABLE}\n{wait}"), monkeypatch)

    main = threading.get_ident()

    def interrupt() -> None:
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        time.sleep(0.2)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        _build(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_lock_is_held_by_one_and_freed(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with only_one("thing", Progress()):
            order.append("second")

    with only_one("thing", Progress()):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join(timeout=5)
    assert order == ["first", "second"]


def _recipe() -> Recipe:
    return Recipe.of(ImageSpec("f1793c1c4"))


def _tree() -> Tree:
    return Tree(Path("/tree"), Origin("sdist", "10705", build=10705), "hash")


def _cli(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True)
    file = folder / "docker"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def _on_path(cli: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{cli.parent}:{os.environ['PATH']}")


def _build(folder: Path) -> None:
    docker_build(
        Path("Dockerfile"),
        folder,
        tag="t:1",
        labels={},
        log=folder / "log",
        title="building",
        progress=Progress(),
    )
