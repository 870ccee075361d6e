"""The source `git`: the upstream repository, at a commit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from lab import paths
from lab.errors import LabError
from lab.pins import BUILD
from lab.progress import Update
from lab.sources.tree import Origin

UPSTREAM = "https://github.com/ggml-org/llama.cpp"
VARIABLE = "RPCLAB_LLAMA_CPP_GIT"
PROBE_SECONDS = 5


def url() -> str:
    """The repository: upstream's, or what `RPCLAB_LLAMA_CPP_GIT` names."""
    return os.environ.get(VARIABLE) or UPSTREAM


def reachable(repository: str) -> bool:
    """Whether the repository answers within a few seconds."""
    try:
        return _git(
            Path("/"), "ls-remote", "--exit-code", repository, "HEAD", timeout=PROBE_SECONDS
        )[0]
    except (OSError, subprocess.TimeoutExpired):
        return False


def fetch(name: str, commit: str, target: Path, update: Update) -> Origin:
    """Check `commit` (a full or a short hash, or a build's tag) out into `target`.

    Raises:
        LabError: the repository does not answer or has no such commit.
    """
    update("reading the history")
    full, build = _resolve(_ref(commit))
    update(f"downloading b{build}")
    # Its own repository, so that half a download leaves nothing behind.
    _run(target, "init", "--quiet")
    _run(target, "-c", "core.autocrlf=false", "fetch", "--quiet", "--depth=1", url(), full)
    _run(target, "-c", "core.autocrlf=false", "checkout", "--quiet", "FETCH_HEAD")
    shutil.rmtree(target / ".git")
    return Origin(kind="git", name=name, build=build, commit=full)


def line(one: str, other: str) -> list[str]:
    """The commits of the main line from one to another, both included, the older first.

    Args:
        one, other: full or short hashes, or builds' tags.

    Raises:
        LabError: the repository does not answer, has no such commit, or neither leads to the other.
    """
    ends = [_resolve(_ref(end))[0] for end in (one, other)]
    history = _history()
    for old, new in (ends, ends[::-1]):
        if _git(history, "merge-base", "--is-ancestor", old, new)[0]:
            said = _run(history, "rev-list", "--first-parent", "--reverse", f"{old}..{new}")
            return [old, *said.split()]
    raise LabError(f"neither {one} nor {other} leads to the other", where=url())


def _ref(commit: str) -> str:
    """In full: six digits may also be the beginning of a hash."""
    return f"refs/tags/{commit}" if re.fullmatch(BUILD, commit) else commit


def _history() -> Path:
    return paths.cache() / "sources" / "history.git"


def _resolve(commit: str) -> tuple[str, int]:
    """The full hash, and upstream's build number: how many commits lead to it.

    Both need the history, of which only the commits are fetched (a few megabytes).
    """
    history = _history()
    if not history.is_dir():
        history.mkdir(parents=True)
        _run(history, "init", "--quiet", "--bare")
        _run(history, "remote", "add", "origin", url())
    _run(history, "remote", "set-url", "origin", url())
    if not _git(history, "cat-file", "-e", f"{commit}^{{commit}}")[0]:
        _run(history, "fetch", "--quiet", "--filter=tree:0", "origin", "+HEAD:refs/heads/upstream")
    if len(commit) == 40 and not _git(history, "cat-file", "-e", f"{commit}^{{commit}}")[0]:
        # On no line that leads to HEAD: a pull request's, say.
        _run(history, "fetch", "--quiet", "--filter=tree:0", "origin", commit)
    found, full = _git(history, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    if not found:
        raise LabError(
            f"has no commit {commit}", where=url(), hint="check images/pins.toml, or its full hash"
        )
    return full, int(_run(history, "rev-list", "--count", full))


def _run(folder: Path, *arguments: str) -> str:
    fine, said = _git(folder, *arguments)
    if not fine:
        raise LabError(
            f"git {arguments[0]} failed: {said}",
            where=url(),
            hint=f"check the network, set {VARIABLE} to a mirror, or use --source sdist",
        )
    return said


def _git(folder: Path, *arguments: str, timeout: float | None = None) -> tuple[bool, str]:
    """Whether it ended well, and what it said."""
    try:
        done = subprocess.run(
            # A connection that went silent ends, instead of hanging for ever.
            ["git", "-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=30", *arguments],
            cwd=folder,
            env=os.environ | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError:
        return False, "git is not installed"
    return done.returncode == 0, (done.stdout if done.returncode == 0 else done.stderr).strip()
