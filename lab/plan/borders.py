"""`make plan-borders`: a scenario in which every border is tried, and must end as the plan says.

Of each model here with each number of workers: every `-ts` that gives each worker a position. What
raises no warning must answer, and rightly; what raises one must crash.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from pathlib import Path

from lab import models
from lab.plan import devices, flags, header
from lab.plan.heads import PIN
from lab.plan.suggest import suggest
from lab.plan.warnings import Scene, warnings

LINE = "-ngl 99 -c 512 -t 1 -np 1 -fit off"
TRIED: tuple[tuple[str, int], ...] = tuple(
    (model, workers)
    for model in ("glm-dsa", "glm-dsa-full", "deepseek4", "deepseek4-front")
    for workers in (2, 3, 4)
)
"""Model, workers."""

TOP = """\
report = "plan-borders"
title = "Every border, as rpclab plan judges it"
args = ["-ngl", "99", "-c", "512", "-t", "1", "-np", "1", "-fit", "off"]
workload = { prompt = 300, predict = 16 }
"""

CRASH = """\
[case.expect]
outcome = "crash"
node = "head"
phase = "warmup"
exit = 134
signature = "create-node-invalid-data-ptr"
logged_by = "worker"
"""


def splits(model: str, workers: int) -> Iterator[str]:
    """Every `-ts` with no empty share."""
    positions = header.read(models.build(models.STANDARD[model]).path).layers + 1
    for borders in combinations(range(1, positions), workers - 1):
        yield ",".join(str(high - low) for low, high in pairwise([0, *borders, positions]))


def scene(model: str, workers: int, line: str) -> Scene:
    """The plan of a standard model on workers of one size."""
    given = devices.parse([f"RPC{n}=worker{n + 1}:{50051 + n},16G" for n in range(workers)])
    read = header.read(models.build(models.STANDARD[model]).path)
    return Scene.of(read, flags.parse(line.split()), given)


def suggested(model: str, workers: int) -> list[str]:
    """What `--suggest` says of it."""
    return suggest(scene(model, workers, LINE))


def case(model: str, workers: int, shares: str) -> str:
    """One case, with what the plan expects."""
    warned = warnings(scene(model, workers, f"{LINE} -ts {shares}"))
    tag = shares.replace(",", "-")
    return f"""
[[case]]
pin = "{PIN}"
model = "{model}"
workers = {workers}
tag = "ts{tag}"
args = ["-ts", "{shares}"]
""" + (CRASH if warned else 'expect = { outcome = "ok" }\n')


def text(tried: Iterable[tuple[str, int]] = TRIED) -> str:
    """The whole scenario."""
    cases = [case(name, count, ts) for name, count in tried for ts in splits(name, count)]
    return TOP + "".join(cases)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text())
