"""Who owns what on an engine: labels, and whether the owner still lives."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

RUN = "rpclab.run"
CASE = "rpclab.case"
OWNER = "rpclab.owner"
KEEP = "rpclab.keep"
"""Left up on purpose: `rpclab run --keep`."""


@dataclass(frozen=True)
class Owner:
    """A process on a host, told apart from a later one with the same number."""

    host: str
    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Owner:
        """The owner that process `pid` of this host is."""
        return cls(_host(), pid, _started(pid))

    @classmethod
    def parse(cls, label: str) -> Owner | None:
        """The owner that a label names, or None where it names none."""
        host, _, rest = label.partition("|")
        pid, _, started = rest.partition("|")
        return cls(host, int(pid), started) if started and pid.isdigit() else None

    def __str__(self) -> str:
        return f"{self.host}|{self.pid}|{self.started}"

    def lives(self) -> bool:
        """Whether the process still runs. An owner on another host is left alone: it may."""
        if self.host != _host():
            return True
        try:
            return self == Owner.of(self.pid)
        except psutil.NoSuchProcess:
            return False


def labels(run: str, case: str, *, keep: bool = False) -> dict[str, str]:
    """The labels of everything that a case creates; this process is the owner."""
    kept = {KEEP: "yes"} if keep else {}
    return {RUN: run, CASE: case, OWNER: str(Owner.of(os.getpid()))} | kept


def die_with_parent(parent: int) -> None:
    """End this process soon after its parent did, however that ended; what it made, the guard
    removes."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _started(pid: int) -> str:
    """When a process began, on a clock that is never set.

    The time of day is not one: it moves with every correction, and a lab at work would be taken
    for dead. A process that has ended and waits for its parent to notice is dead.
    """
    process = psutil.Process(pid)
    if process.status() == psutil.STATUS_ZOMBIE:
        raise psutil.NoSuchProcess(pid)
    stat = Path(f"/proc/{pid}/stat")
    try:
        # Field 22, counted behind the name, which may hold anything: clock ticks since boot.
        return stat.read_text(errors="replace").rpartition(")")[2].split()[19]
    except ProcessLookupError:
        raise psutil.NoSuchProcess(pid) from None
    except FileNotFoundError:
        return f"{process.create_time():.2f}"


@cache
def _host() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()}/{boot.read_text().strip()[:8] if boot.exists() else ''}"
