"""A budget of cores and memory that the processes of one night share: a ledger in a file.

A case enters what it takes before it begins and strikes it out at its end. What a process that
died had entered counts no more, so a killed night leaves nothing to clean up.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock

from lab.nightly.plan import MIB, Need
from lab.owner import Owner

WAIT_SECONDS = 0.1
SPARE_MEMORY = 512 * MIB
"""Left to the engine and to everything else."""
NETWORKS = 20
"""Of about 30 that an engine's default address pools hold."""

Line = dict[str, Any]
"""{"owner": str, "runs": bool} and a Need's fields; lines stand in the order of asking."""


def machine() -> Need:
    """What this machine has to give: its cores, and the memory that is free now."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    free = psutil.virtual_memory().available - SPARE_MEMORY
    return Need(float(cores or 1), max(0, free), NETWORKS)


@dataclass(frozen=True)
class Ledger:
    """Who takes what at this moment."""

    file: Path
    total: Need

    @contextmanager
    def claim(self, need: Need) -> Iterator[None]:
        """Wait until `need` is free, in the order of asking; hold it meanwhile.

        A case that needs more than there is runs when nothing else does.
        """
        me = str(Owner.of(os.getpid()))
        self._update(me, need, granted=False)
        try:
            while not self._update(me, need, granted=True):
                time.sleep(WAIT_SECONDS)
            yield
        finally:
            self._update(me, None, granted=False)

    def _update(self, me: str, need: Need | None, *, granted: bool) -> bool:
        """Write or strike out this process's line; whether it is granted, where that is asked."""
        with FileLock(self.file.with_suffix(".lock")):
            lines = [line for line in self._read() if line["owner"] == me or _lives(line["owner"])]
            mine = next((line for line in lines if line["owner"] == me), None)
            if need is None:
                lines = [line for line in lines if line is not mine]
            elif mine is None:
                lines.append({"owner": me, "runs": False} | asdict(need))
            elif granted:
                # One that came later does not overtake: a big case would wait for ever.
                before = itertools.takewhile(lambda line: line is not mine, lines)
                waiting = any(not line["runs"] for line in before)
                mine["runs"] = not waiting and self._fits(need, lines)
                granted = mine["runs"]
            partial = self.file.with_suffix(".tmp")
            partial.write_text(json.dumps(lines), encoding="utf-8")
            partial.replace(self.file)
            return granted

    def _fits(self, need: Need, lines: list[Line]) -> bool:
        running = [line for line in lines if line["runs"]]
        return not running or (
            sum(line["cores"] for line in running) + need.cores <= self.total.cores
            and sum(line["memory"] for line in running) + need.memory <= self.total.memory
            and sum(line["networks"] for line in running) + need.networks <= self.total.networks
        )

    def _read(self) -> list[Line]:
        if not self.file.is_file():
            return []
        return list(json.loads(self.file.read_text(encoding="utf-8")))


def _lives(owner: str) -> bool:
    found = Owner.parse(owner)
    return found is not None and found.lives()
