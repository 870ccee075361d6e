"""The guard: a small detached process that cleans up behind a lab that was killed.

It holds the read end of a pipe whose write end the lab holds. The kernel closes the write end
however the lab ends, `kill -9` included; the guard then removes everything that carries the lab's
owner label. Unlike the testcontainers reaper it needs no image.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

QUIET_SECONDS = 2.0
"""How long nothing may turn up before the guard believes that all is gone: a request
that the dying lab had sent may still be at work in the engine."""


class Guard:
    """Watches over what one process owns, while that process lives."""

    def __init__(self, owner: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lab.guard", owner],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The guard's process number."""
        return self._process.pid

    def dismiss(self) -> None:
        """The lab cleaned up behind itself: the guard may go."""
        stdin = self._process.stdin
        if stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                stdin.write(b"done")
                stdin.close()
        self._process.wait(timeout=10)


def _watch(owner: str) -> None:
    if os.read(0, 16) == b"done":
        return
    # Imported only now: the guard of a run that ends well stays small and starts at once.
    from lab import engine, sweep

    client = engine.client()
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_SECONDS:
        if sweep.sweep_owner(client, owner):
            quiet_since = time.monotonic()
        time.sleep(0.2)


if __name__ == "__main__":
    _watch(sys.argv[1])
