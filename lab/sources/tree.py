"""Source trees in the cache: complete or absent, and checked by hash."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from lab import paths

Kind = Literal["git", "sdist"]
KINDS: tuple[Kind, ...] = ("git", "sdist")

TREE = "llama.cpp"
NOTE = "tree.json"


@dataclass(frozen=True)
class Origin:
    """What a tree is: one build, from one kind of source."""

    kind: Kind
    name: str
    """The commit's short hash (git) or the build number (sdist)."""
    build: int
    commit: str = ""
    """The full hash; only a git tree has one."""

    @property
    def id(self) -> str:
        """The tree's folder in the cache."""
        return f"{self.kind}-{self.name}"


@dataclass(frozen=True)
class Tree:
    """A llama.cpp source tree on disk."""

    path: Path
    origin: Origin
    hash: str


def folder(kind: Kind, name: str) -> Path:
    """Where the tree is cached."""
    return paths.cache() / "sources" / f"{kind}-{name}"


def cached(kind: Kind, name: str) -> Tree | None:
    """The tree as its note describes it, its files not looked at; None where there is none."""
    home = folder(kind, name)
    try:
        note = json.loads((home / NOTE).read_text(encoding="utf-8"))
        return Tree(home / TREE, Origin(**note["origin"]), str(note["hash"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def checked(kind: Kind, name: str) -> Tree | None:
    """As `cached`, but None too where a file was changed, added or removed since."""
    tree = cached(kind, name)
    return tree if tree and tree.path.is_dir() and tree_hash(tree.path) == tree.hash else None


def store(kind: Kind, name: str, fill: Callable[[Path], Origin]) -> Tree:
    """Have `fill` write a tree into a new folder, then put it in place in one step."""
    home = folder(kind, name)
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}.") as work:
        fresh = Path(work) / "new"
        (fresh / TREE).mkdir(parents=True)
        origin = fill(fresh / TREE)
        note = {"origin": asdict(origin), "hash": tree_hash(fresh / TREE)}
        (fresh / NOTE).write_text(json.dumps(note, indent=1), encoding="utf-8")
        if home.exists():
            home.rename(Path(work) / "old")
        fresh.rename(home)
    tree = cached(kind, name)
    assert tree is not None  # noqa: S101  (written a line ago)
    return tree


def tree_hash(root: Path) -> str:
    """Of every path, content and executable bit below `root`."""
    total = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.is_symlink() or not p.is_dir()):
        if path.is_symlink():
            kind, content = "l", str(path.readlink()).encode()
        else:
            kind = "x" if path.stat().st_mode & 0o100 else "f"
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        total.update(f"{kind}\0{path.relative_to(root).as_posix()}\0".encode() + content)
    return total.hexdigest()


def remove(kind: Kind, name: str) -> None:
    """Forget the tree."""
    shutil.rmtree(folder(kind, name), ignore_errors=True)
