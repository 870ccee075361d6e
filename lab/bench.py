"""`make bench`: what a case costs, as ratios measured in one run on one machine.

case : engine       a whole case against what its containers and networks cost the engine alone
one : side by side  the same cases one after another against `-n auto`
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker
from rich.console import Console
from rich.table import Table

from lab import engine, images, owner, report, sweep
from lab.guard import Guard
from lab.images import ImageSpec

PIN = "1548a240e"
ROUNDS = 3
CASES = f"{PIN} and (llama or gpt-oss) and not 5w"
NETWORKS, CONTAINERS = 4, 4
"""What a case with two workers needs."""


def main() -> None:
    """Measure and print."""
    console = Console()
    image = images.ensure(ImageSpec(PIN)).id
    client = engine.client()
    guard = Guard(str(owner.Owner.of(os.getpid())))
    try:
        alone = statistics.median(_engine_alone(client, image) for _ in range(ROUNDS))
    finally:
        guard.dismiss()
    with tempfile.TemporaryDirectory(prefix="rpclab-bench-") as folder:
        _cases(Path(folder), "1", f"{PIN} and llama-2w")  # references and caches
        one, per_case = _cases(Path(folder), "1", CASES)
        side, _ = _cases(Path(folder), "auto", CASES)
    table = Table("what", "seconds", "ratio", box=None)
    table.add_row("engine alone, 4 containers and 4 networks", f"{alone:.2f}", "1")
    table.add_row("a case of that size", f"{per_case:.2f}", f"{per_case / alone:.2f}")
    table.add_row("all cases, one after another", f"{one:.1f}", "1")
    table.add_row("all cases, side by side (-n auto)", f"{side:.1f}", f"{side / one:.2f}")
    console.print(table)


def _cases(folder: Path, parallel: str, only: str) -> tuple[float, float]:
    """Seconds from the first case's begin to the last one's end, and the median of one case."""
    runs = folder / f"{parallel}-{time.monotonic_ns()}"
    subprocess.run(
        [sys.executable, "-m", "lab", "run", "28047", "-k", only, "-n", parallel],
        env=os.environ | {"RPCLAB_RUNS": str(runs)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    times = report.stage_times(next(runs.iterdir()))
    return times.total, statistics.median(times.stages["whole case"])


def _engine_alone(client: docker.DockerClient, image: str) -> float:
    """Seconds to make, start and remove idle containers on networks, as a case does."""
    labels = owner.labels("bench", "engine")

    def network(index: int) -> Any:
        return client.networks.create(f"rpclab-bench-{os.getpid()}-{index}", labels=labels)

    def container(net: Any) -> None:
        client.containers.run(image, ["sleep", "60"], network=net.name, labels=labels, detach=True)

    began = time.monotonic()
    with ThreadPoolExecutor(CONTAINERS) as pool:
        run_all: Callable[..., Any] = pool.map
        list(run_all(container, list(run_all(network, range(NETWORKS)))))
    sweep.sweep_case(client, labels)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
