"""Cases: what a scenario's rows come to, each fully resolved."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab import models, paths, toml
from lab.errors import InputError
from lab.faults import Fault, Ground
from lab.images import ImageSpec
from lab.scenario import Budget, Expect, Link, Row, Scenario, Workload


@dataclass(frozen=True)
class Case:
    """One combination of a row, with the row's expectation."""

    id: str
    """Stable, such as `28047[glm-dsa-2w-f1793c1c4]`."""
    scenario: str
    head: ImageSpec
    workers: tuple[ImageSpec, ...]
    model: models.ModelSpec
    model_name: str
    args: tuple[str, ...]
    worker_args: tuple[str, ...]
    workload: Workload
    link: Link
    budget: Budget
    needs: tuple[str, ...]
    expect: Expect
    why: str
    draft: models.ModelSpec | None = None
    draft_name: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    right: tuple[str, ...] | None = None
    """Arguments that the reference is computed with, where they are not the case's own: a flag that
    was added to avoid a failure must not change what is right."""
    faults: tuple[Fault, ...] = ()
    under: tuple[Fault, ...] = ()
    again: bool = False

    @property
    def images(self) -> set[ImageSpec]:
        """All that it needs."""
        return {self.head, *self.workers}

    @property
    def slug(self) -> str:
        """The id as a directory name: the part in brackets."""
        return self.id.partition("[")[2].rstrip("]")


def find(name: str) -> Path:
    """The scenario file that a user's argument means: a path, or a report's number."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return path
    path = paths.SCENARIOS / f"{name}.toml"
    if not path.is_file():
        there = sorted(p.stem for p in paths.SCENARIOS.glob("*.toml"))
        raise InputError(toml.unknown("scenario", name, there), where=str(paths.SCENARIOS))
    return path


def load_cases(path: Path) -> list[Case]:
    """The cases of a scenario file, in its order.

    Raises:
        InputError: file and field path, what is wrong, what is allowed.
    """
    scenario = toml.load(path, Scenario)
    specs = dict(models.STANDARD)
    for name, data in scenario.models.items():
        specs[name] = models.parse(data, where=f"{path}: models.{name}")
    cases: dict[str, Case] = {}
    for index, row in enumerate(scenario.case):
        for case in _expand(scenario, row, specs, f"{path}: case.{index}"):
            if case.id in cases:
                raise InputError(
                    f"two cases with the id {case.id}",
                    where=f"{path}: case.{index}",
                    hint='tell the rows apart with `tag = "..."`',
                )
            cases[case.id] = case
    return list(cases.values())


def _expand(
    scenario: Scenario, row: Row, specs: dict[str, models.ModelSpec], where: str
) -> list[Case]:
    for name in [*row.model, *([row.draft] if row.draft else [])]:
        if name not in specs:
            raise InputError(
                toml.unknown("model", name, sorted(specs)),
                where=f"{where}.{'model' if name in row.model else 'draft'}",
                hint="a model of this scenario only: [models.NAME] with `arch` and its parameters",
            )
    cases = []
    axes = (row.model, row.workers, row.pin, row.worker_pin, row.flavour, row.variant)
    for model, workers, pin, worker_pin, flavour, variant in itertools.product(*axes):
        for key in ("node", "logged_by", "alive", "dead"):
            named = getattr(row.expect, key)
            for node in [named] if isinstance(named, str | None) else named:
                _check_worker(node, workers, f"{where}.expect.{key}")
        _check_worker(row.link.only, workers, f"{where}.link.only")
        _check_flavour(flavour, workers, f"{where}.flavour")
        _check_faults(row, scenario, workers, where)
        head = f"{row.head}-head" if row.head != "cpu" else None
        kind = flavour if flavour != "cpu" else None
        words = [model, f"{workers}w", pin, worker_pin, kind, head, variant, row.tag]
        cases.append(
            Case(
                id=f"{scenario.report}[{'-'.join(word for word in words if word)}]",
                scenario=scenario.report,
                head=ImageSpec(pin, row.head, variant),
                workers=_workers(workers, worker_pin or pin, flavour, variant),
                model=specs[model],
                model_name=model,
                args=(*scenario.args, *row.args),
                worker_args=(*scenario.worker_args, *row.worker_args),
                workload=row.workload or scenario.workload,
                link=row.link,
                budget=row.budget or scenario.budget,
                needs=tuple(row.needs),
                expect=row.expect,
                why=row.why,
                draft=specs[row.draft] if row.draft else None,
                draft_name=row.draft,
                env=row.env,
                faults=tuple(row.faults),
                under=tuple(row.under),
                again=row.again,
            )
        )
    return cases


def _workers(count: int, pin: str, flavour: str, variant: str | None) -> tuple[ImageSpec, ...]:
    turns = itertools.cycle(flavour.split("+"))
    return tuple(ImageSpec(pin, next(turns), variant) for _ in range(count))


def _check_flavour(flavour: str, workers: int, where: str) -> None:
    """A case must not be named after a flavour that no worker of it has."""
    if flavour != "cpu" and len(flavour.split("+")) > workers:
        raise InputError(
            f"{flavour} is more than {workers} worker(s) can have",
            where=where,
            hint="`flavour` is the workers'; `head` is the head's",
        )


def _check_faults(row: Row, scenario: Scenario, workers: int, where: str) -> None:
    """A fault that this topology cannot have is a mistake of the file's."""
    ground = Ground(workers, (*scenario.worker_args, *row.worker_args), row.env)
    for key, given in (("faults", row.faults), ("under", row.under)):
        for index, fault in enumerate(given):
            if reason := fault.unavailable(ground):
                raise InputError(reason, where=f"{where}.{key}.{index}")
            for moment in (fault.at, fault.until):
                if moment:
                    _check_worker(moment.node, workers, f"{where}.{key}.{index}.at.node")


def _check_worker(node: str | None, workers: int, where: str) -> None:
    if not node or node == "head":
        return
    number = int(node.removeprefix("worker") or 1)
    if not 1 <= number <= workers:
        raise InputError(
            f"{node} does not exist in a case with {workers} worker(s)",
            where=where,
            hint="workers are worker1, worker2, ...; `worker` means any of them",
        )
