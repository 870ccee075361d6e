"""The container engine, and a docker CLI that can build for it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import docker
from docker.context import ContextAPI
from docker.errors import DockerException

from lab.errors import LabError, NoEngineError

NEXT_STEP = (
    "install and start one (`make engine` does, as root on Debian and Ubuntu), "
    "or point DOCKER_HOST at one"
)


def client(timeout: int = 60) -> docker.DockerClient:
    """A new connection to the engine that DOCKER_HOST or the docker context names.

    Args:
        timeout: seconds to wait for each answer.

    Raises:
        NoEngineError: no engine answers there.
    """
    host = endpoint()
    try:
        if "DOCKER_HOST" in os.environ:
            return docker.from_env(timeout=timeout)
        return docker.DockerClient(base_url=host, timeout=timeout)
    except (DockerException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise NoEngineError(
            f"no container engine answers ({reason})", where=host, hint=NEXT_STEP
        ) from error


def endpoint() -> str:
    """Where the engine is; the SDK, unlike the CLI, does not look at the docker context."""
    if host := os.environ.get("DOCKER_HOST"):
        return host
    context = ContextAPI.get_current_context()
    return str(context.Host) if context else "unix:///var/run/docker.sock"


@functools.cache
def buildkit_cli() -> Path:
    """The first docker CLI on PATH that can build with BuildKit.

    Two CLIs can be on PATH, and the first may be a new one without the buildx plugin, which
    refuses; an older one has BuildKit built in.

    Raises:
        LabError: there is none; names those found and why each was passed over.
    """
    refused: list[str] = []
    for folder in os.get_exec_path():
        found = shutil.which("docker", path=folder)
        if found is None:
            continue
        reason = _refusal(found)
        if reason is None:
            return Path(found)
        refused.append(f"{found}: {reason}")
    raise LabError(
        "no docker CLI here can build with BuildKit",
        where="; ".join(refused) or "PATH",
        hint="install the buildx plugin (docker-buildx), or Debian's docker.io, and run again",
    )


def build_environment() -> dict[str, str]:
    """The environment for a build with `buildkit_cli`, on the engine that `client` speaks to."""
    return os.environ | {
        "DOCKER_BUILDKIT": "1",
        "DOCKER_HOST": endpoint(),
        # The builder of that engine, whatever `docker buildx use` chose: the image must be there.
        "BUILDX_BUILDER": "default",
        # One image, not an index of an image and its attestation.
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
    }


def _refusal(cli: str) -> str | None:
    """Why this CLI cannot build with BuildKit, or None. Its help text is enough to tell."""
    try:
        answer = subprocess.run(
            [cli, "build", "--help"],
            env=os.environ | {"DOCKER_BUILDKIT": "1"},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if answer.returncode != 0:
        return (answer.stderr.strip().splitlines() or ["it failed"])[0]
    return None if "--secret" in answer.stdout else "older than BuildKit"
