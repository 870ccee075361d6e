"""What an operator can change: a table, one entry a knob, cheap ones first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

from lab import pins, variants
from lab.args import value, without
from lab.case import Case
from lab.flavours import flavours, load_flavour
from lab.images import ImageSpec
from lab.plan.header import Header
from lab.scenario import Budget
from lab.workarounds.splits import splits, words_of

TS = {"-ts": 1, "--tensor-split": 1}
OT = {"-ot": 1, "--override-tensor": 1}
NGL = {"-ngl": 1, "--gpu-layers": 1, "--n-gpu-layers": 1}

ROUNDS = 0.05
"""How far (nats) log-probabilities may be from the reference's where a flag chooses other kernels;
where two tokens are closer than that, either is right."""
OTHER_BACKEND = 0.1
"""The same, where another backend computes."""


EXACT = {"vulkan": {"GGML_VK_DISABLE_F16": "1"}}
"""Environment in which a backend rounds least, so that rounding is told from a wrong answer."""
COMPILES = 300.0
"""Seconds that a phase may take on a backend that compiles its kernels first."""


class Cost(IntEnum):
    """What a change costs the user, cheapest first."""

    FLAG = 0
    SPEED = 1
    HEAD_MEMORY = 2
    FEWER_WORKERS = 3
    BACKEND = 4
    REBUILD = 5
    OTHER_BUILD = 6

    @property
    def words(self) -> str:
        """For people."""
        return COSTS[self]

    @property
    def has_images(self) -> bool:
        """Whether the images of the case itself do."""
        return self < Cost.BACKEND


COSTS = {
    Cost.FLAG: "a flag",
    Cost.SPEED: "speed",
    Cost.HEAD_MEMORY: "memory on the head",
    Cost.FEWER_WORKERS: "fewer workers hold it",
    Cost.BACKEND: "another backend",
    Cost.REBUILD: "a rebuild",
    Cost.OTHER_BUILD: "another build",
}


@dataclass(frozen=True)
class Ground:
    """The case that fails, and its model."""

    case: Case
    header: Header

    @property
    def positions(self) -> int:
        """What `-ts` is spread over: the layers and the output."""
        return self.header.layers + 1


@dataclass(frozen=True)
class Change:
    """The case with a knob turned."""

    words: str
    """What the user does, such as `-ts 1,6`."""
    case: Case


@dataclass(frozen=True)
class Knob:
    """`turn` yields each of its settings; none where it does not apply to the case."""

    name: str
    cost: Cost
    about: str
    turn: Callable[[Ground], Iterator[Change]]
    places: bool = False
    """It says what is where, and changes nothing else: a rule must explain it."""


@dataclass(frozen=True)
class Try:
    """One setting of a knob, or of two."""

    knob: str
    cost: Cost
    words: str
    case: Case
    places: bool = False

    @property
    def key(self) -> str:
        """Tells it from the others; stays the same from one start to the next."""
        return f"{self.knob}: {self.words}"


def flag(
    *words: str, rounds: bool = False, tensors: str = ""
) -> Callable[[Ground], Iterator[Change]]:
    """A knob that adds these words to the head's, where the model has tensors of this name."""

    def turn(ground: Ground) -> Iterator[Change]:
        if any(tensors in name for name in ground.header.tensors):
            case = _with(ground.case, words)
            yield Change(" ".join(words), _tolerant(case, ROUNDS) if rounds else case)

    return turn


def _borders(ground: Ground) -> Iterator[Change]:
    """Every way to cut the layers where they are few, else where the model's structure changes."""
    case = _without(ground.case, TS)
    given = value(ground.case.args, *TS)
    if given:
        yield Change(f"without -ts {given}", case)
    for shares in splits(ground.header, len(case.workers)):
        if words_of(shares) != given:
            yield Change(f"-ts {words_of(shares)}", _with(case, ("-ts", words_of(shares))))


def _no_override(ground: Ground) -> Iterator[Change]:
    if value(ground.case.args, *OT):
        yield Change("without -ot", _without(ground.case, OT))


def _partly(ground: Ground) -> Iterator[Change]:
    """Half of the layers, and all but the output's neighbour, on the workers."""
    given = value(ground.case.args, *NGL)
    most = min(int(given), ground.positions) if given and given.isdigit() else ground.positions
    for count in dict.fromkeys((most - 1, math.ceil(most / 2))):
        if 0 < count < most:
            case = _with(_without(ground.case, NGL), ("-ngl", str(count)))
            yield Change(f"-ngl {count}", case)


def _one_works(ground: Ground) -> Iterator[Change]:
    if len(ground.case.workers) > 1:
        plain = _without(ground.case, TS | OT)
        yield Change("-sm none" + _dropped(ground.case), _with(plain, ("-sm", "none")))


def _fewer(ground: Ground) -> Iterator[Change]:
    for count in range(len(ground.case.workers) - 1, 0, -1):
        plain = _without(ground.case, TS | OT)
        words = f"{count} worker{'s' if count > 1 else ''}" + _dropped(ground.case)
        yield Change(words, replace(plain, workers=plain.workers[:count]))


def _no_draft(ground: Ground) -> Iterator[Change]:
    if ground.case.draft:
        yield Change("without -md", replace(ground.case, draft=None, draft_name=None))


def _worker_cpu(ground: Ground) -> Iterator[Change]:
    if {spec.flavour for spec in ground.case.workers} - {"cpu"}:
        args = (*ground.case.worker_args, "-d", "CPU")
        yield Change("workers: -d CPU", _tolerant(replace(ground.case, worker_args=args), ROUNDS))


def _backend(ground: Ground) -> Iterator[Change]:
    used = {spec.flavour for spec in ground.case.workers}
    for flavour in flavours():
        if used == {flavour} or load_flavour(flavour).simulated:
            continue
        workers = tuple(replace(spec, flavour=flavour) for spec in ground.case.workers)
        env = {**ground.case.env, **EXACT.get(flavour, {})}
        case = replace(ground.case, workers=workers, env=env, budget=_patient(ground.case.budget))
        case = _tolerant(case, OTHER_BACKEND)
        yield Change(f"workers built with {flavour}", case)


def _variant(ground: Ground) -> Iterator[Change]:
    for name in variants.variant_names():
        if name != ground.case.head.variant:
            yield Change(f"variant {name}", _built(ground.case, variant=name))


def _build(ground: Ground) -> Iterator[Change]:
    """The other builds that the project knows, the next newer one first, then the older."""
    table = pins.load_pins().values()
    known = {p.id: int(p.build.rpartition("b")[2]) for p in table if p.role != "unknown"}
    own = known.get(ground.case.head.pin)
    if own is None:
        return
    newer = sorted((order, pin) for pin, order in known.items() if order > own)
    older = sorted(((order, pin) for pin, order in known.items() if order < own), reverse=True)
    for _, pin in [*newer, *older]:
        yield Change(f"build {pin}", _built(ground.case, pin=pin))


KNOBS: tuple[Knob, ...] = (
    Knob("ts", Cost.FLAG, "another split of the layers", _borders, places=True),
    Knob("no-ot", Cost.FLAG, "no overridden tensors", _no_override, places=True),
    Knob("no-op-offload", Cost.FLAG, "host's tensors computed there", flag("--no-op-offload")),
    Knob("no-warmup", Cost.FLAG, "no empty run", flag("--no-warmup")),
    Knob("draft", Cost.SPEED, "no draft model", _no_draft),
    Knob("fa", Cost.SPEED, "no flash attention", flag("-fa", "off", rounds=True)),
    Knob("ub", Cost.SPEED, "a smaller batch", flag("-ub", "128", rounds=True)),
    Knob("worker-cpu", Cost.SPEED, "the workers' processors compute", _worker_cpu),
    Knob("nkvo", Cost.HEAD_MEMORY, "KV cache and state on the head", flag("-nkvo"), places=True),
    Knob("cmoe", Cost.HEAD_MEMORY, "experts on the head", flag("-cmoe", tensors="_exps")),
    Knob(
        "ot-indexer",
        Cost.HEAD_MEMORY,
        "the indexers' weights on the head",
        flag("-ot", "indexer=CPU", tensors="indexer"),
    ),
    Knob("ngl", Cost.HEAD_MEMORY, "some layers on the head", _partly, places=True),
    Knob("sm-none", Cost.FEWER_WORKERS, "one worker holds it all", _one_works, places=True),
    Knob("fewer", Cost.FEWER_WORKERS, "fewer workers", _fewer, places=True),
    Knob("backend", Cost.BACKEND, "workers with another backend", _backend),
    Knob("variant", Cost.REBUILD, "a small source edit (images/variants/)", _variant),
    Knob("build", Cost.OTHER_BUILD, "another build (images/pins.toml)", _build),
)


def singles(knobs: Iterable[Knob], ground: Ground) -> list[Try]:
    """Every setting of every knob, in the table's order."""
    return [
        Try(
            knob.name,
            knob.cost,
            change.words,
            _asked_alike(change.case, ground.case, change.words),
            knob.places,
        )
        for knob in knobs
        for change in knob.turn(ground)
    ]


def pairs(knobs: Iterable[Knob], ground: Ground) -> list[Try]:
    """Two knobs turned at once, of those that need no other images, the cheapest first."""
    cheap = [knob for knob in knobs if knob.cost < Cost.FEWER_WORKERS]
    found = []
    for place, first in enumerate(cheap):
        for one in first.turn(ground):
            for second in cheap[place + 1 :]:
                for two in second.turn(replace(ground, case=one.case)):
                    words = f"{one.words} + {two.words}"
                    case = _asked_alike(two.case, ground.case, words)
                    name = f"{first.name} + {second.name}"
                    found.append(Try(name, max(first.cost, second.cost), words, case))
    return sorted(found, key=lambda tried: tried.cost)


def _asked_alike(case: Case, original: Case, words: str) -> Case:
    """Right is what the original command line answers with no RPC: an added flag that changes
    what is computed must not change what it is held against."""
    name = "".join(c if c.isalnum() or c in ".,-" else "_" for c in words.replace(" ", "_"))
    return replace(
        case,
        id=f"{original.scenario}[{original.slug} {name}]".replace(" ", "--"),
        right=original.args if original.right is None else original.right,
    )


def _with(case: Case, words: tuple[str, ...]) -> Case:
    return replace(case, args=(*case.args, *words))


def _without(case: Case, flags: dict[str, int]) -> Case:
    return replace(case, args=without(case.args, flags))


def _dropped(case: Case) -> str:
    """What names workers or counts them goes with them."""
    gone = [f for f in ("-ts", "-ot") if value(case.args, *(TS if f == "-ts" else OT)) is not None]
    return f", without {' and '.join(gone)}" if gone else ""


def _tolerant(case: Case, nats: float) -> Case:
    tolerance = max(nats, case.workload.tolerance)
    workload = case.workload.model_copy(update={"tolerance": tolerance, "ties": True})
    return replace(case, workload=workload)


def _patient(budget: Budget) -> Budget:
    longer = {name: max(COMPILES, value) for name, value in budget.model_dump().items()}
    return Budget(**longer | {"shutdown": budget.shutdown})


def _built(case: Case, **changes: str) -> Case:
    def other(spec: ImageSpec) -> ImageSpec:
        return replace(spec, **changes)

    return replace(case, head=other(case.head), workers=tuple(map(other, case.workers)))
