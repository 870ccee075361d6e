"""The search for a workaround: what is tried, what is called a cure, and the rule behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_case import case, workers

from lab import models
from lab.args import value
from lab.case import Case
from lab.errors import InputError, LabError
from lab.mark import Mark
from lab.oracle import reference_case
from lab.plan import header
from lab.workarounds import advice, rules
from lab.workarounds.hunt import Hunt, Quest
from lab.workarounds.knobs import KNOBS, Cost, Ground, Knob, flag, pairs, singles
from lab.workarounds.splits import FEW, splits
from lab.workarounds.trial import LONG, Result, in_slots, long

CRASH, OK, WRONG = Mark("crash", "create-node"), Mark("ok"), Mark("wrong-output", "tokens")

Does = Callable[[Case], Mark]


class Planted:
    """Runs cases that do what was planted."""

    def __init__(self, does: Does, most: int | None = None) -> None:
        self._does, self._left = does, most
        self.ran: list[str] = []

    def run(
        self, cases: Sequence[tuple[str, Case]], *, alone: bool = False
    ) -> Iterator[tuple[str, Result]]:
        for key, its in cases:
            if self._left is not None:
                if not self._left:
                    return
                self._left -= 1
            self.ran.append(key)
            mark = self._does(its)
            yield key, Result(mark, str(mark), f"runs/{key}", 100.0 / len(its.workers))


def ground(name: str = "glm-dsa", count: int = 2, *words: str) -> Ground:
    spec = models.STANDARD[name]
    its = case(
        id=f"28047[{name}-{count}w-f1793c1c4]",
        model=spec,
        model_name=name,
        workers=workers(count),
        args=("-ngl", "99", "-c", "2048", "-t", "1", *words),
    )
    return Ground(its, header.read(models.build(spec).path))


def hunt(path: Path, on: Ground, table: Sequence[Knob] = KNOBS) -> Hunt:
    def why_not(its: Case) -> str | None:
        plain = {spec.flavour for spec in its.images} == {"cpu"}
        return None if plain and its.head.pin in ("f1793c1c4", "b10724") else "no image"

    quest = Quest("28047.toml", on.case.slug, [knob.name for knob in table])
    return Hunt(path, quest, on, why_not, table)


def found(it: Hunt) -> dict[str, str]:
    return {row["change"]: row["result"] for row in advice.facts(it)["changes"]}


def indexer(its: Case) -> Mark:
    """What glm-dsa does: its indexers' results cross no border between workers."""
    if its.head.pin != "f1793c1c4":
        return OK
    scene = rules.scene(its, header.read(models.build(its.model).path))
    return OK if rules.RULES[0].holds(scene) else CRASH


def test_what_is_cured_and_the_rule_behind_it(tmp_path: Path) -> None:
    it = hunt(tmp_path, ground())
    it.go(Planted(indexer), lambda line: None)
    results = found(it)
    assert [w for w, r in results.items() if r == advice.CURE and w.startswith("-ts")] == [
        "-ts 2,5",
        "-ts 1,6",
        "-ts 6,1",
    ]
    assert results["-ts 3,4"] == results["-nkvo"] == advice.SAME
    assert results["build 1548a240e"] == advice.UNTRIED
    facts = advice.facts(it)
    assert facts["rule"]["name"] == "own-indexer"
    assert facts["command"][0].endswith("-ts 2,5")
    one = next(row for row in facts["changes"] if row["change"] == "-ts 2,5")
    assert one["of_one_worker"] == pytest.approx(0.5)


def test_no_rule_where_none_explains_all(tmp_path: Path) -> None:
    def odd(its: Case) -> Mark:
        return OK if value(its.args, "-ts") in ("3,4", "1,6") else CRASH

    it = hunt(tmp_path, ground())
    it.go(Planted(odd), lambda line: None)
    assert advice.facts(it)["rule"] is None
    assert any("no rule found" in line for line in advice.text(advice.facts(it)))


@pytest.mark.parametrize("stage", ["again", "slots", "long"])
def test_what_fails_once_is_no_cure(tmp_path: Path, stage: str) -> None:
    seen: list[str] = []

    def at_times(its: Case) -> Mark:
        if value(its.args, "-ts") != "2,5":
            return CRASH
        seen.append(its.id)
        shape = "slots" if its.workload.together else "long" if its.workload.prompt >= LONG else ""
        return CRASH if shape == stage or (stage == "again" and len(seen) == 2) else OK

    it = hunt(tmp_path, ground())
    it.go(Planted(at_times), lambda line: None)
    results = found(it)
    assert results["-ts 2,5"] == advice.SAME
    assert advice.CURE not in results.values()
    assert advice.facts(it)["command"] is None


def test_a_wrong_answer_is_no_cure(tmp_path: Path) -> None:
    it = hunt(tmp_path, ground())
    it.go(Planted(lambda its: WRONG if "-nkvo" in its.args else CRASH), lambda line: None)
    assert found(it)["-nkvo"] == advice.WRONG
    assert advice.CURE not in found(it).values()


def test_another_failure_is_told_as_that(tmp_path: Path) -> None:
    other = Mark("crash", "out-of-memory")
    it = hunt(tmp_path, ground())
    it.go(Planted(lambda its: other if "-nkvo" in its.args else CRASH), lambda line: None)
    assert found(it)["-nkvo"] == advice.OTHER


def test_right_is_what_the_original_command_line_answers() -> None:
    changes = (flag("--override-kv", "glm-dsa.rope.freq_base=float:7"),)
    table = [Knob("wrong", Cost.FLAG, "", change) for change in changes]
    (tried,) = singles(table, ground())
    assert "--override-kv" in tried.case.args
    assert "--override-kv" not in reference_case(tried.case).args
    assert "--override-kv" not in reference_case(long(tried.case)).args
    assert "--override-kv" not in reference_case(in_slots(tried.case)).args
    # But a larger context is the reference's as well.
    assert value(reference_case(in_slots(tried.case)).args, "-c") == value(
        in_slots(tried.case).args, "-c"
    )


def test_two_changes_only_where_no_single_one_helps(tmp_path: Path) -> None:
    table = [k for k in KNOBS if k.name in ("no-warmup", "nkvo", "ub", "build")]

    def both(its: Case) -> Mark:
        return OK if {"-nkvo", "--no-warmup"} <= set(its.args) else CRASH

    it = hunt(tmp_path / "pair", ground(), table)
    it.path.mkdir()
    it.go(Planted(both), lambda line: None)
    assert found(it)["--no-warmup + -nkvo"] == advice.CURE

    it = hunt(tmp_path / "single", ground(), table)
    it.path.mkdir()
    it.go(Planted(lambda its: OK if "-nkvo" in its.args else CRASH), lambda line: None)
    assert not it.pairs


def test_pairs_take_what_costs_least_first() -> None:
    found = pairs(KNOBS, ground())
    assert [it.cost for it in found] == sorted(it.cost for it in found)
    assert all(it.cost < Cost.FEWER_WORKERS for it in found)


def test_a_case_that_answers_has_nothing_to_work_around(tmp_path: Path) -> None:
    runs = Planted(lambda its: OK)
    with pytest.raises(InputError, match="nothing to work around"):
        hunt(tmp_path, ground()).go(runs, lambda line: None)
    assert len(runs.ran) == 2


def test_a_case_that_the_lab_cannot_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LabError):
        hunt(tmp_path, ground()).go(Planted(lambda its: Mark("error")), lambda line: None)


def test_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    first = hunt(tmp_path, ground())
    early = Planted(indexer, most=7)
    first.go(early, lambda line: None)
    assert advice.UNTRIED in found(first).values()
    second = hunt(tmp_path, ground())
    second.load()
    late = Planted(indexer)
    second.go(late, lambda line: None)
    assert not set(early.ran) & set(late.ran)
    whole = hunt(tmp_path / "whole", ground())
    whole.path.mkdir()
    whole.go(Planted(indexer), lambda line: None)
    assert found(second) == found(whole)


def test_splits_are_all_of_few_layers_and_else_where_the_structure_changes() -> None:
    few = ground().header
    assert len(splits(few, 2)) == 6
    assert len(splits(few, 3)) == 15
    assert splits(few, 1) == []
    many = replace(few, keys=few.keys | {"glm-dsa.block_count": 60})
    types = [1 if layer < 3 or layer % 4 == 2 else 0 for layer in range(60)]
    many = replace(many, keys=many.keys | {"glm-dsa.attention.indexer.types": types})
    found = splits(many, 3)
    assert 0 < len(found) <= FEW
    for first, second, _ in found:
        assert types[first] == types[first + second] == 1


def test_a_command_line_for_a_real_model(tmp_path: Path) -> None:
    it = hunt(tmp_path, ground())
    it.go(Planted(indexer), lambda line: None)
    few = it.ground.header
    types = [1 if layer < 3 or layer % 4 == 2 else 0 for layer in range(60)]
    real = replace(
        few,
        keys=few.keys
        | {"glm-dsa.block_count": 60, "glm-dsa.attention.indexer.types": types}
        | {"glm-dsa.leading_dense_block_count": 3},
    )
    told = advice.facts(it, ("GLM.gguf", real))["for"]
    assert told["change"] == "-ts 30,31"
    assert types[30] == 1
    assert "-m GLM.gguf" in told["command"][0]
    # A model to which the rule does not apply gets no split by it.
    plain = header.read(models.build(models.STANDARD["llama"]).path)
    told = advice.facts(it, ("llama.gguf", plain))["for"]
    assert not (told["change"] or "").startswith("-ts")
