"""Cases without a scenario file."""

from dataclasses import replace
from typing import Any

from lab import models
from lab.case import Case
from lab.images import ImageSpec
from lab.scenario import Budget, Expect, Link, Workload


def workers(count: int) -> tuple[ImageSpec, ...]:
    """That many workers of the report's pin."""
    return (ImageSpec("f1793c1c4"),) * count


CASE = Case(
    id="28047[glm-dsa-2w-f1793c1c4]",
    scenario="28047",
    head=ImageSpec("f1793c1c4"),
    model=models.STANDARD["glm-dsa"],
    model_name="glm-dsa",
    workers=workers(2),
    args=("-ngl", "99", "-t", "1"),
    worker_args=("-t", "1"),
    workload=Workload(prompt=48, predict=16),
    link=Link(),
    budget=Budget(),
    needs=(),
    expect=Expect(
        outcome="crash", node="head", phase="warmup", signature="create-node-invalid-data-ptr"
    ),
    why="the report",
)


def case(**changes: Any) -> Case:
    """The report's case with some fields changed."""
    return replace(CASE, **changes)
