"""The evidence directory of a case: what is written where, and never overwritten.

runs/<time>-<scenario>/<case>/
    case.json       the resolved case, its image and model, what really ran
    commands.json   node -> command line
    events.jsonl    the timeline: {"t": unix seconds, "event": name, ...}
    logs/NODE.log   every line with the engine's timestamp
    inspect/NODE.json   the container as it stood at the end
    nodes.json      node -> running, exit code, out of memory, finished
    stacks/NODE.txt thread stacks, of a hang
    links.json      link -> bytes to the worker ("up") and from it ("down"), load and all
    answers.json    the answers of the head, one per request
    reference.json  the right answers: same image, model, workload, no RPC
    outcome.json, verdict.json, reproduce.sh
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from lab.errors import InputError


def new_run(root: Path, name: str) -> Path:
    """A new directory for a run; an existing one is never used again."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    for attempt in range(1000):
        path = root / (f"{stamp}-{name}" + (f".{attempt}" if attempt else ""))
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise InputError(
                f"cannot keep evidence here: {error.strerror}",
                where=str(root),
                hint="name another directory with RPCLAB_RUNS",
            ) from error
        return path
    raise InputError("a thousand runs in one second", where=str(root))


class Evidence:
    """Reads and writes one case's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    @classmethod
    def create(cls, run: Path, slug: str) -> Evidence:
        """A new case directory; a repeated case gets one of its own (`slug.2`, ...)."""
        for attempt in range(1, 10000):
            path = run / (slug if attempt == 1 else f"{slug}.{attempt}")
            try:
                (path / "logs").mkdir(parents=True)
            except FileExistsError:
                continue
            return cls(path)
        raise InputError("too many repeats of one case", where=str(run / slug))

    def event(self, name: str, **facts: Any) -> None:
        """Append to the timeline."""
        line = json.dumps({"t": round(time.time(), 4), "event": name, **facts})
        with self._lock, (self.path / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def write(self, name: str, data: Any) -> None:
        """Write one JSON file."""
        self.write_text(name, json.dumps(data, indent=2) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Write one text file."""
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        # A lab that is killed in the middle must not leave half a file.
        partial = file.with_name(f".{file.name}.tmp")
        partial.write_text(text, encoding="utf-8")
        partial.replace(file)

    def put_aside(self, name: str) -> None:
        """Keep a file that is about to be written anew: `verdict.json` as `verdict.1.json`, ..."""
        file = self.path / name
        if not file.exists():
            return
        free = (file.with_name(f"{file.stem}.{n}{file.suffix}") for n in itertools.count(1))
        file.rename(next(path for path in free if not path.exists()))

    def read(self, name: str, default: Any = None) -> Any:
        """One JSON file, or `default` where the case did not get that far."""
        file = self.path / name
        if not file.is_file():
            return default
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"not valid JSON: {error}", where=str(file)) from None

    def events(self) -> list[dict[str, Any]]:
        """The timeline in order."""
        file = self.path / "events.jsonl"
        if not file.is_file():
            return []
        lines = file.read_text(encoding="utf-8").splitlines()
        return [cast(dict[str, Any], json.loads(line)) for line in lines if line.endswith("}")]

    def has_log(self, node: str) -> bool:
        """Whether a node's log is there, with the engine's timestamps in it unless it is empty."""
        file = self.log_path(node)
        if not file.is_file():
            return False
        lines = self.log(node)
        return not lines or any(at for at, _ in lines)

    def log_path(self, node: str) -> Path:
        """Where a node's log is."""
        return self.path / "logs" / f"{node}.log"

    def log(self, node: str) -> list[tuple[float, str]]:
        """A node's log: (unix seconds, line). A line with no time has that of the one before.

        What comes after the head was started once more (`again`) is another story: it is left out.
        """
        file = self.log_path(node)
        if not file.is_file():
            return []
        end = next((event["t"] for event in self.events() if event["event"] == "again"), None)
        lines: list[tuple[float, str]] = []
        for raw in file.read_text(encoding="utf-8", errors="replace").splitlines():
            stamp, _, text = raw.partition(" ")
            at = _unix(stamp)
            if at is None:
                lines.append((lines[-1][0] if lines else 0.0, raw))
            elif end is not None and at >= end:
                break
            else:
                lines.append((at, text))
        return lines

    def nodes(self) -> list[str]:
        """The nodes that have a log: head first, then the workers."""
        names = sorted(path.stem for path in (self.path / "logs").glob("*.log"))
        return [name for name in names if name != "toxiproxy"]


def case_dirs(run: Path) -> Iterator[Path]:
    """The case directories of a run, or the directory itself where it is one."""
    if (run / "case.json").is_file():
        yield run
        return
    yield from sorted(path.parent for path in run.glob("*/case.json"))


def _unix(stamp: str) -> float | None:
    """Unix seconds of the engine's RFC 3339 timestamp with nanoseconds; None: it is none."""
    try:
        whole, _, fraction = stamp.rstrip("Z").partition(".")
        return datetime.fromisoformat(whole + "+00:00").timestamp() + float(f"0.{fraction or 0}")
    except ValueError:
        return None
