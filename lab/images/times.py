"""How long each image took to build. An image cannot carry this: it is known only afterwards."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from lab import paths


@dataclass(frozen=True)
class Time:
    """A build's."""

    seconds: float
    compiled: bool
    """False: the engine had the compiling step's outcome already."""

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s" + ("" if self.compiled else " (compiled before)")


def record(name: str, key: str, seconds: float, compiled: bool) -> None:
    """Remember that the image `name` with these inputs took so long."""
    path = _file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    note = {"key": key, "seconds": round(seconds, 1), "compiled": compiled, "when": when}
    path.write_text(json.dumps(note), encoding="utf-8")


def of(name: str, key: str) -> Time | None:
    """How long that image took here; None where it was not built here."""
    try:
        note = json.loads(_file(name).read_text(encoding="utf-8"))
        found = Time(float(note["seconds"]), bool(note["compiled"]))
        return found if note["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _file(name: str) -> Path:
    return paths.cache() / "builds" / f"{name}.json"
