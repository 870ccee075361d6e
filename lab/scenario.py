"""Scenario files: one upstream report as TOML.

A scenario is rows; a row is a small matrix (`pin`, `worker_pin`, `model`, `workers`,
`flavour` and `variant` may each be a list) with one expectation. `lab/case.py` makes its cases.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from lab import hosts, pins, toml
from lab.facts import BUFFERS
from lab.faults import AnyFault, Fault
from lab.faults.after import After
from lab.flavours import flavours
from lab.signatures import load_signatures
from lab.variants import variant_names

Outcome = Literal["ok", "crash", "hang", "refused", "wrong-output"]
Phase = Literal["start", "load", "warmup", "prefill", "decode", "shutdown"]

MAX_WORKERS = 16
"""llama.cpp's own limit on devices (GGML_SCHED_MAX_BACKENDS / LLAMA_MAX_DEVICES)."""

RPC = "{rpc}"
"""In a row's `args`: where the head's `--rpc` stands, if not before all else."""

LAB_ARGS = {
    "--rpc": f"use `workers` (and {RPC} for its place)",
    "-m": "use `model`",
    "--model": "use `model`",
    "-md": "use `draft`",
    "--model-draft": "use `draft`",
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
    alive: list[Annotated[str, Field(pattern=r"^(head|worker\d*)$")]] = []
    """Who must have lived to the end of the work; `worker`: one of them."""
    dead: list[Annotated[str, Field(pattern=r"^(head|worker\d*)$")]] = []
    """Who must not have; `worker`: none of them."""
    buffers: dict[str, dict[str, Annotated[float, Field(ge=0)]]] = {}
    """What the head must have logged: what the buffer holds -> device -> MiB (within 0.01)."""
    workers_used: Annotated[int, Field(ge=0)] | None = None
    """On how many workers the head must have put weights."""
    misplaced: list[Annotated[int, Field(ge=0)]] | None = None
    """Layers whose fused operation the head must have found on another device, no more."""
    after: After = After()
    """What must hold after the fault."""

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

    @field_validator("buffers")
    @classmethod
    def _kinds(cls, buffers: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        for kind in buffers:
            if kind not in BUFFERS:
                raise ValueError(toml.unknown("kind of buffer", kind, sorted(BUFFERS)))
        return buffers

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
    ties: bool = False
    """Where the reference is nearly undecided between two tokens either is right, and the rest of
    that answer is not compared: for another backend, which rounds otherwise."""


class Link(toml.Strict, strict=True):
    """A condition of every link that must not matter to the outcome."""

    latency_ms: Annotated[int, Field(ge=0, le=10000)] = 0
    """Added to each direction."""
    only: Annotated[str, Field(pattern=r"^worker\d+$")] | None = None
    """The one link that has it; default: all."""


class Budget(toml.Strict, strict=True):
    """Seconds that a phase may take; over it the outcome is `hang`."""

    start: Annotated[float, Field(gt=0)] = 60
    load: Annotated[float, Field(gt=0)] = 120
    warmup: Annotated[float, Field(gt=0)] = 60
    prefill: Annotated[float, Field(gt=0)] = 120
    decode: Annotated[float, Field(gt=0)] = 120
    shutdown: Annotated[float, Field(gt=0)] = 10
    again: Annotated[float, Field(gt=0)] = 20
    """Of the head that is started once more, until it serves."""


class Row(toml.Strict, strict=True):
    """One row of a report's table: a matrix of cases that share one expectation."""

    pin: OneOrMore
    model: OneOrMore
    workers: Annotated[list[Annotated[int, Field(ge=0, le=MAX_WORKERS)]], Field(min_length=1)]
    worker_pin: Annotated[list[str | None], Field(min_length=1)] = [None]
    """The workers' pin, where it is not the head's."""
    flavour: OneOrMore = ["cpu"]
    """Of the workers; `cpu+vulkan`: they take turns."""
    head: str = "cpu"
    """The head's flavour."""
    variant: Annotated[list[str | None], Field(min_length=1)] = [None]
    tag: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")] | None = None
    """Ends the case ids of this row, where the matrix alone does not tell it from another."""
    args: list[str] = []
    """More arguments of the head, as llama.cpp spells them."""
    worker_args: list[str] = []
    """More arguments of every worker."""
    draft: str | None = None
    """The head's draft model (`-md`)."""
    env: dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], str] = {}
    """Environment of every node."""
    workload: Workload | None = None
    budget: Budget | None = None
    link: Link = Link()
    faults: list[AnyFault] = []
    under: list[AnyFault] = []
    """Faults that must not matter: the case must end as it does without them."""
    again: bool = False
    """After the work, start the head once more, with the same workers, and ask it."""
    needs: list[str] = []
    """Labels that a host must carry; no such host: the case is skipped, and says so."""
    expect: Expect
    why: str = ""

    @model_validator(mode="before")
    @classmethod
    def _scalars(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        axes = ("pin", "worker_pin", "model", "workers", "flavour", "variant", "under")
        return {
            key: [value] if key in axes and not isinstance(value, list) else value
            for key, value in data.items()
        }

    @model_validator(mode="after")
    def _after_what(self) -> Row:
        given = self.expect.after.model_fields_set
        if self.expect.after.again and not self.again:
            raise ValueError("expect.after.again needs `again = true`")
        if given - {"again"} and not self.faults:
            raise ValueError("expect.after needs `faults`")
        return self

    @field_validator("under")
    @classmethod
    def _must_not_matter(cls, faults: list[Fault]) -> list[Fault]:
        for fault in faults:
            if fault.kills or fault.starves:
                raise ValueError(f"{fault.kind} matters to any case: use `faults`")
        return faults

    @field_validator("args")
    @classmethod
    def _not_the_labs(cls, args: list[str]) -> list[str]:
        return _free_args(args)

    @field_validator("pin")
    @classmethod
    def _pins(cls, names: list[str]) -> list[str]:
        return _all_known("pin", names, sorted(pins.load_pins()))

    @field_validator("worker_pin")
    @classmethod
    def _worker_pins(cls, names: list[str | None]) -> list[str | None]:
        _all_known("pin", [name for name in names if name], sorted(pins.load_pins()))
        return names

    @field_validator("flavour")
    @classmethod
    def _flavours(cls, names: list[str]) -> list[str]:
        for name in names:
            for part in name.split("+"):
                _all_known("flavour", [part], flavours())
        return _once(names)

    @field_validator("head")
    @classmethod
    def _head(cls, name: str) -> str:
        return _all_known("flavour", [name], flavours())[0]

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


def _free_args(args: list[str]) -> list[str]:
    for arg in args:
        if arg in LAB_ARGS:
            raise ValueError(f"{arg} is set by the lab: {LAB_ARGS[arg]}")
    return args


def _all_known(kind: str, names: list[str], allowed: list[str]) -> list[str]:
    for name in names:
        if name not in allowed:
            raise ValueError(toml.unknown(kind, name, allowed))
    return _once(names)


def _once(names: list[str]) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is listed twice")
    return names
