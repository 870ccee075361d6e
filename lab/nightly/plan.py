"""Which cases a night runs, in which order, and what each needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lab import toml
from lab.case import Case
from lab.errors import InputError
from lab.flavours import Flavour

MIB = 1 << 20

WAITS = 0.5
"""Cores of a case with short prompts: half of its time it waits for the engine (`make bench`)."""
COMPUTES = 1.0
"""Cores of a case with long prompts: one node at a time computes, with one thread."""
LONG_PROMPT = 512
"""Tokens from which a prompt's computing, not the engine, makes up a case's time."""
ALL_CORES = ("vulkan",)
"""Flavours whose workers may run on lavapipe, which takes every core that it finds."""

LAB_MEMORY = 150 * MIB
"""This side of a case: a pytest-xdist worker, a guard, toxiproxy."""
NODE_MEMORY = {"vulkan": 900 * MIB}
"""Bytes of a node, by flavour."""
PLAIN_NODE_MEMORY = 150 * MIB
"""Of any other: a tiny model, its caches and compute buffers."""

CASE_SECONDS = 3.0
"""About what the shortest case takes."""
TOKENS_PER_SECOND = 200.0
SLOW_FLAVOURS = {"vulkan": 60.0}
"""Seconds that a flavour adds: the first case of each compiles shaders."""


@dataclass(frozen=True)
class Need:
    """What a case takes while it runs."""

    cores: float
    memory: int
    """Bytes."""
    networks: int = 0
    """Of the engine's, whose address pools are few."""


@dataclass(frozen=True)
class Job:
    """One case of a night, to be run `repeat` times."""

    id: str
    scenario: str
    pin: str
    need: Need
    seconds: float
    """How long one run is expected to take."""


def need(case: Case, cores: float) -> Need:
    """What a case takes, on a machine with so many cores."""
    kinds = [spec.flavour for spec in (case.head, *case.workers)]
    networks = len(case.workers) + 2
    memory = LAB_MEMORY + sum(NODE_MEMORY.get(kind, PLAIN_NODE_MEMORY) for kind in kinds)
    if any(kind in ALL_CORES for kind in kinds):
        return Need(cores, memory, networks)
    return Need(COMPUTES if case.workload.prompt >= LONG_PROMPT else WAITS, memory, networks)


def estimate(case: Case) -> float:
    """Seconds that a case may take, from its scenario alone: the same on every machine."""
    tokens = case.workload.requests * (case.workload.prompt + case.workload.predict)
    # A reply travels through each worker, there and back.
    network = case.workload.requests * case.workload.predict * case.link.latency_ms / 1000 * 2
    slow = max((SLOW_FLAVOURS.get(spec.flavour, 0.0) for spec in case.images), default=0.0)
    return CASE_SECONDS + tokens / TOKENS_PER_SECOND + network * max(1, len(case.workers)) + slow


def jobs(cases: Iterable[Case], recorded: Mapping[str, float], cores: float) -> list[Job]:
    """The cases, longest first: what takes long must not begin last.

    Args:
        recorded: case id -> seconds that it took before; a case with no entry is estimated.
        cores: of this machine.
    """
    found = [
        Job(
            case.id,
            case.scenario,
            case.head.pin,
            need(case, cores),
            recorded.get(case.id, estimate(case)),
        )
        for case in cases
    ]
    return sorted(found, key=lambda job: (-job.seconds, job.id))


@dataclass(frozen=True)
class Shard:
    """Part `index` of `count`, from 1."""

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """`2/5`. Raises `InputError`."""
        index, slash, count = text.partition("/")
        if slash and index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count):
            return cls(int(index), int(count))
        raise InputError(f"not a shard: {text!r}; allowed: 1/5 to 5/5", where="--shard")

    def of(self, cases: Sequence[Case]) -> list[Case]:
        """The shard's cases, in their order. Every case is in one shard.

        The division depends on the scenario files alone, not on what a machine has recorded:
        machines that share a night must agree on it.
        """
        loads = [0.0] * self.count
        chosen = set()
        for case in sorted(cases, key=lambda case: (-estimate(case), case.id)):
            lightest = loads.index(min(loads))
            loads[lightest] += estimate(case)
            if lightest == self.index - 1:
                chosen.add(case.id)
        return [case for case in cases if case.id in chosen]

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def in_flavours(
    cases: Iterable[Case], wanted: Sequence[str], known: Mapping[str, Flavour]
) -> list[Case]:
    """The cases that need no other flavour than those wanted; none wanted: all.

    A simulated device needs nothing that the flavour below it does not: it comes along.

    Raises:
        InputError: there is no such flavour.
    """
    for name in wanted:
        if name not in known:
            raise InputError(toml.unknown("flavour", name, sorted(known)), where="--flavour")
    if not wanted:
        return list(cases)
    allowed = set(wanted) | {
        name for name, flavour in known.items() if flavour.simulated and flavour.on in wanted
    }
    return [case for case in cases if {spec.flavour for spec in case.images} <= allowed]
