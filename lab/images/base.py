"""The base image of every flavour, Debian 13: pulled where a hub answers, else made here."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import docker

from lab.engine import client as connect
from lab.errors import LabError
from lab.images.pull import NotPulledError, pull, same_source
from lab.images.types import Image, find
from lab.lock import only_one
from lab.progress import Progress

TAG = "rpclab/base:trixie"
SOURCE = "debian:trixie-slim"
VARIABLE = "RPCLAB_BASE_IMAGE"
SUITE = "trixie"


def ensure_base(progress: Progress | None = None) -> Image:
    """The base image, tagged `TAG` on the engine.

    `RPCLAB_BASE_IMAGE` names another image to pull: then a failed pull is an error.

    Raises:
        LabError: it can neither be pulled nor made; says what would help.
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
        return _make(engine, progress)


def _make(engine: docker.DockerClient, progress: Progress) -> Image:
    tool = shutil.which("mmdebstrap")
    if tool is None:
        raise LabError(
            f"no hub has {SOURCE} for us, and mmdebstrap, which would make it, is missing",
            where=TAG,
            hint="apt-get install mmdebstrap (as root), or `docker load` a Debian 13 image and "
            f"`docker tag` it {TAG}",
        )
    with tempfile.TemporaryDirectory(prefix="rpclab-base-") as folder:
        archive = Path(folder) / "base.tar"
        with progress.step(f"making {TAG} with mmdebstrap") as update:
            update("")
            done = subprocess.run(
                [tool, "--variant=minbase", "--include=ca-certificates", SUITE, str(archive)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                last = "\n  ".join(done.stderr.strip().splitlines()[-5:])
                raise LabError(f"mmdebstrap failed:\n  {last}", where=TAG)
            update("importing")
            repository, _, version = TAG.partition(":")
            engine.api.import_image(
                str(archive),
                repository=repository,
                tag=version,
                changes=['CMD ["bash"]', 'LABEL rpclab.base="mmdebstrap"'],
            )
    image = find(engine, TAG)
    if image is None:
        raise LabError("the engine did not import what mmdebstrap made", where=TAG)
    return image
