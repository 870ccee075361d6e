"""Scenario files: one upstream report as TOML, expanded to cases.

A scenario is rows; a row is a small matrix (`pin`, `model`, `workers`, `flavour` and `variant` may
each be a list) with one expectation. Each combination is a case with a stable id such as
`28047[glm-dsa-2w-f1793c1c4]`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from lab import hosts, models, paths, pins, toml
from lab.errors import InputError
from lab.images import ImageSpec
from lab.images.recipe import flavours
from lab.signatures import load_signatures
from lab.variants import variant_names

Outcome = Literal["ok", "crash", "hang", "refused", "wrong-output"]
Phase = Literal["start", "load", "warmup", "prefill", "decode", "shutdown"]

MAX_WORKERS = 16
"""llama.cpp's own limit on devices (GGML_SCHED_MAX_BACKENDS / LLAMA_MAX_DEVICES)."""

LAB_ARGS = {
    "--rpc": "use `workers`",
    "-m": "use `model`",
    "--model": "use `model`",
    "--host": "the proxy must reach it",
    "--port": "the proxy must reach it",
    "-lv": "the phases are read from the log",
    "--verbosity": "the phases are read from the log",
    "--log-verbosity": "the phases are read from the log",
}
"""Arguments of the head that a scenario cannot give, and why."""

OneOrMore = Annotated[list[str], Field(min_length=1)]


class Expect(toml.Strict, strict=True):
    """What must happen. Every key that is given must match; `ok` also means: the right output.

    A crash must name its node, phase and signature: "it crashed somehow" proves nothing.
    """

    outcome: Outcome
    node: Annotated[str, Field(pattern=r"^(head|worker\d*)$")] | None = None
    phase: Phase | None = None
    signature: str | None = None
    logged_by: Annotated[str, Field(pattern=r"^(head|worker\d*)$")] | None = None
    exit: Annotated[int, Field(ge=1, le=255)] | None = None
    alive: list[Annotated[str, Field(pattern=r"^(head|worker)$")]] = []

    @model_validator(mode="after")
    def _enough(self) -> Expect:
        if self.outcome == "crash":
            absent = [k for k in ("node", "phase", "signature") if getattr(self, k) is None]
            if absent:
                raise ValueError(f"a crash must also name: {', '.join(absent)}")
        if self.outcome == "ok" and (self.node or self.phase or self.signature or self.exit):
            raise ValueError("an ok outcome has no node, phase, signature or exit")
        if self.outcome == "hang" and not self.phase:
            raise ValueError("a hang must also name: phase")
        return self

    @field_validator("signature")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        known = sorted(load_signatures())
        if name is not None and name not in known:
            raise ValueError(toml.unknown("signature", name, known))
        return name


class Workload(toml.Strict, strict=True):
    """Requests to the head: exact prompt lengths, greedy, with log-probabilities."""

    prompt: Annotated[int, Field(ge=2, le=262144)] = 32
    """Length of each prompt in tokens, the beginning-of-sequence token included."""
    predict: Annotated[int, Field(ge=1, le=4096)] = 16
    """Tokens to generate per request."""
    requests: Annotated[int, Field(ge=1, le=64)] = 1
    together: bool = False
    """Send all requests at once instead of one after another."""
    tolerance: Annotated[float, Field(ge=0, le=1)] = 1e-3
    """Largest difference of a token's log-probability (nats) from the reference that is right."""


class Link(toml.Strict, strict=True):
    """A condition of every link that must not matter to the outcome."""

    latency_ms: Annotated[int, Field(ge=0, le=10000)] = 0
    """Added to each direction."""


class Budget(toml.Strict, strict=True):
    """Seconds that a phase may take; over it the outcome is `hang`."""

    start: Annotated[float, Field(gt=0)] = 60
    load: Annotated[float, Field(gt=0)] = 120
    warmup: Annotated[float, Field(gt=0)] = 60
    prefill: Annotated[float, Field(gt=0)] = 120
    decode: Annotated[float, Field(gt=0)] = 120
    shutdown: Annotated[float, Field(gt=0)] = 10


class Row(toml.Strict, strict=True):
    """One row of a report's table: a matrix of cases that share one expectation."""

    pin: OneOrMore
    model: OneOrMore
    workers: Annotated[list[Annotated[int, Field(ge=0, le=MAX_WORKERS)]], Field(min_length=1)]
    flavour: OneOrMore = ["cpu"]
    variant: Annotated[list[str | None], Field(min_length=1)] = [None]
    tag: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")] | None = None
    """Ends the case ids of this row, where the matrix alone does not tell it from another."""
    args: list[str] = []
    """More arguments of the head, as llama.cpp spells them."""
    workload: Workload | None = None
    link: Link = Link()
    needs: list[str] = []
    """Labels that a host must carry; no such host: the case is skipped, and says so."""
    expect: Expect
    why: str = ""

    @model_validator(mode="before")
    @classmethod
    def _scalars(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        axes = ("pin", "model", "workers", "flavour", "variant")
        return {
            key: [value] if key in axes and not isinstance(value, list) else value
            for key, value in data.items()
        }

    @field_validator("args")
    @classmethod
    def _not_the_labs(cls, args: list[str]) -> list[str]:
        return _free_args(args)

    @field_validator("pin")
    @classmethod
    def _pins(cls, names: list[str]) -> list[str]:
        return _all_known("pin", names, sorted(pins.load_pins()))

    @field_validator("flavour")
    @classmethod
    def _flavours(cls, names: list[str]) -> list[str]:
        return _all_known("flavour", names, flavours())

    @field_validator("variant")
    @classmethod
    def _variants(cls, names: list[str | None]) -> list[str | None]:
        _all_known("variant", [name for name in names if name], variant_names())
        return [name or None for name in names]

    @field_validator("needs")
    @classmethod
    def _labels(cls, names: list[str]) -> list[str]:
        return _all_known("label", names, sorted(hosts.LABELS))


class Scenario(toml.Strict, strict=True):
    """A scenario file."""

    report: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    """The upstream issue number, which also names the file."""
    title: str
    args: list[str] = []
    """Arguments of every head, as llama.cpp spells them."""
    worker_args: list[str] = ["-t", "1"]
    """Arguments of every worker."""
    workload: Workload = Workload()
    budget: Budget = Budget()
    models: dict[Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")], dict[str, Any]] = {}
    """Models of this scenario only, by name; the standard ones are there anyway."""
    case: Annotated[list[Row], Field(min_length=1)]

    @field_validator("args")
    @classmethod
    def _not_the_labs(cls, args: list[str]) -> list[str]:
        return _free_args(args)


@dataclass(frozen=True)
class Case:
    """One fully resolved combination of a scenario, with one expectation."""

    id: str
    scenario: str
    image: ImageSpec
    model: models.ModelSpec
    model_name: str
    workers: int
    args: tuple[str, ...]
    worker_args: tuple[str, ...]
    workload: Workload
    link: Link
    budget: Budget
    needs: tuple[str, ...]
    expect: Expect
    why: str

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
    for name in row.model:
        if name not in specs:
            raise InputError(
                toml.unknown("model", name, sorted(specs)),
                where=f"{where}.model",
                hint="a model of this scenario only: [models.NAME] with `arch` and its parameters",
            )
    cases = []
    matrix = itertools.product(row.model, row.workers, row.pin, row.flavour, row.variant)
    for model, workers, pin, flavour, variant in matrix:
        for key in ("node", "logged_by"):
            _check_worker(getattr(row.expect, key), workers, f"{where}.expect.{key}")
        words = [model, f"{workers}w", pin, flavour if flavour != "cpu" else None, variant, row.tag]
        cases.append(
            Case(
                id=f"{scenario.report}[{'-'.join(word for word in words if word)}]",
                scenario=scenario.report,
                image=ImageSpec(pin=pin, flavour=flavour, variant=variant),
                model=specs[model],
                model_name=model,
                workers=workers,
                args=(*scenario.args, *row.args),
                worker_args=tuple(scenario.worker_args),
                workload=row.workload or scenario.workload,
                link=row.link,
                budget=scenario.budget,
                needs=tuple(row.needs),
                expect=row.expect,
                why=row.why,
            )
        )
    return cases


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


def _free_args(args: list[str]) -> list[str]:
    for arg in args:
        if arg in LAB_ARGS:
            raise ValueError(f"{arg} is set by the lab: {LAB_ARGS[arg]}")
    return args


def _all_known(kind: str, names: list[str], allowed: list[str]) -> list[str]:
    for name in names:
        if name not in allowed:
            raise ValueError(toml.unknown(kind, name, allowed))
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is listed twice")
    return names
