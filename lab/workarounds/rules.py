"""What the cures of a case have in common, over the model's structure. Pure.

A rule is stated only where it explains every observation: it holds wherever the case answered, and
nowhere that it failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab.case import Case
from lab.plan import cache, warnings
from lab.plan import devices as device_list
from lab.plan import flags as flag_list
from lab.plan.header import Header
from lab.plan.place import CPU
from lab.plan.warnings import Scene, bad_moves
from lab.scenario import RPC
from lab.topology import LINK_PORT

LEAST = 2
"""So many observations of either kind a rule must explain: one alone proves nothing."""


@dataclass(frozen=True)
class Rule:
    """A condition on a placement."""

    name: str
    says: str
    """What must hold, for people."""
    applies: Callable[[Header], bool]
    holds: Callable[[Scene], bool]


@dataclass(frozen=True)
class Observation:
    """A placement that was tried on the case's own build."""

    words: str
    scene: Scene
    cured: bool


def _silent(*names: str) -> Callable[[Scene], bool]:
    """Whether rules of the plan (`lab/plan/warnings.py`) have nothing to say."""
    rules = [rule for rule in warnings.RULES if rule.name in names]
    return lambda scene: not any(line for rule in rules for line in rule.find(scene))


def _weights_with_cache(scene: Scene) -> bool:
    # What lies on the head is sent to whoever needs it.
    return all(
        scene.plan.cache_on[layer] == CPU or not bad_moves(scene.header, scene.plan, layer)
        for layer in scene.plan.moved
    )


def _one_device(scene: Scene) -> bool:
    return len(set(scene.plan.layers) - {CPU}) <= 1


def _any(_header: Header) -> bool:
    return True


RULES: tuple[Rule, ...] = (
    Rule(
        "own-indexer",
        "layers that share an indexer are on the worker that has it, or the head has it: "
        "a worker's first layer has an indexer of its own",
        lambda header: 0 in cache.indexers(header) and 1 in cache.indexers(header),
        _silent("border-inside-indexer-group"),
    ),
    Rule(
        "compressors",
        "a worker's first layer does not compress, unless the head has all caches (-nkvo), and no "
        "worker has the output alone",
        lambda header: any(cache.ratios(header)),
        _silent("border-before-compressor", "output-alone"),
    ),
    Rule(
        "weights-with-cache",
        "each layer's weights (-ot) are on the worker that has its cache and state (-ts), or "
        "the head has these",
        _any,
        _weights_with_cache,
    ),
    Rule("one-device", "one device holds all layers", _any, _one_device),
)


def scene(case: Case, header: Header) -> Scene:
    """Where a case's head puts the model; its workers have equal memory."""
    words = [
        f"RPC{number - 1}=worker{number}:{LINK_PORT + number},1G"
        for number in range(1, len(case.workers) + 1)
    ]
    devices = device_list.parse(words)
    flags = flag_list.parse([word for word in case.args if word != RPC])
    return Scene.of(header, flags, devices)


def explain(seen: Sequence[Observation]) -> Rule | None:
    """The first rule that explains all that was seen, or None."""
    for rule in RULES:
        cured = [it for it in seen if it.cured]
        failed = [it for it in seen if not it.cured]
        if min(len(cured), len(failed)) < LEAST or not rule.applies(seen[0].scene.header):
            continue
        if all(rule.holds(it.scene) == it.cured for it in seen):
            return rule
    return None
