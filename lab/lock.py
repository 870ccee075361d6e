"""Only one process of this machine does a thing at a time, and says so when it waits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from lab import paths
from lab.progress import Progress


@contextmanager
def only_one(name: str, progress: Progress) -> Iterator[None]:
    """Hold the lock `name`; the kernel releases it when this process ends, however it ends."""
    path = paths.cache() / "locks" / (re.sub(r"[^\w.-]", "_", name) + ".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with progress.step(f"waiting for another process that makes {name}") as update:
            while not lock.is_locked:
                update(f"(lock {path})")
                try:
                    lock.acquire(timeout=1)
                except Timeout:
                    continue
    try:
        yield
    finally:
        lock.release()
