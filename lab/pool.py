"""Runs cases side by side, each in a process that drives one at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import util
from pathlib import Path

import psutil

from lab.case import Case
from lab.evidence import Evidence
from lab.outcome import classify
from lab.owner import die_with_parent
from lab.runner import Runner

_runner: Runner | None = None


class Pool:
    """Use as a context manager: nothing of it is left on the engine.

    Args:
        run: where the evidence goes.
        width: cases at once.
        deadline: `time.monotonic()` after which nothing is begun.
    """

    def __init__(self, run: Path, width: int, deadline: float | None) -> None:
        self.width, self._deadline = width, deadline
        self._pool = ProcessPoolExecutor(
            width,
            # A forked child would share the parent's connections to the engine.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(run,),
        )

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            # Ctrl-C reaches the whole group, `kill -INT` this process alone.
            for child in psutil.Process().children():
                child.send_signal(signal.SIGINT)
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def out_of_time(self) -> bool:
        """Whether nothing is begun any more."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def run(
        self, cases: Sequence[tuple[str, Case]], *, alone: bool = False
    ) -> Iterator[tuple[str, Path]]:
        """Each (key, case) -> (key, its evidence), as they end; those that the deadline leaves,
        never.

        Args:
            alone: one at a time, so that nothing else takes time from it.
        """
        waiting = list(cases)[::-1]
        running: dict[Future[Path], str] = {}
        while waiting or running:
            while waiting and len(running) < (1 if alone else self.width) and not self.out_of_time:
                key, case = waiting.pop()
                running[self._pool.submit(_run, case)] = key
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def _begin(run: Path) -> None:
    global _runner
    die_with_parent(os.getppid())
    _runner = Runner(run)
    util.Finalize(None, _runner.close, exitpriority=10)


def _run(case: Case) -> Path:
    """Once more where the lab failed: a moment's trouble is no reason to lose a trial."""
    assert _runner is not None  # noqa: S101  (the initializer made it)
    for _ in range(2):
        _, path = _runner.run_case(case)
        if classify(Evidence(path)).outcome != "error":
            break
    return path
