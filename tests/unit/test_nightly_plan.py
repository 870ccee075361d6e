"""What a night runs, in which order, in whose shard, within which budget."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest
from made_case import case, workers

from lab import paths
from lab.case import Case, load_cases
from lab.errors import InputError
from lab.flavours import flavours, load_flavour
from lab.images import ImageSpec
from lab.nightly import plan
from lab.nightly.budget import Ledger
from lab.nightly.plan import MIB, Need, Shard, estimate, in_flavours, need
from lab.nightly.run import turns_left
from lab.scenario import Link, Workload

ALL = [c for file in sorted(paths.SCENARIOS.glob("*.toml")) for c in load_cases(file)]
KNOWN = {name: load_flavour(name) for name in flavours()}


# --- order and need -------------------------------------------------------------------------------


def test_the_longest_comes_first_as_recorded() -> None:
    short, long, new = case(id="a[1]"), case(id="a[2]"), case(id="a[3]")
    jobs = plan.jobs([short, long, new], {"a[1]": 1.0, "a[2]": 90.0}, cores=2)
    assert [job.id for job in jobs] == ["a[2]", "a[3]", "a[1]"]
    assert jobs[1].seconds == estimate(new)


def test_the_recorded_duration_outweighs_the_estimate() -> None:
    big = case(id="a[1]", workload=Workload(prompt=6000, predict=4))
    small = case(id="a[2]")
    assert [j.id for j in plan.jobs([small, big], {}, 2)] == ["a[1]", "a[2]"]
    assert [j.id for j in plan.jobs([small, big], {"a[1]": 1, "a[2]": 2}, 2)] == ["a[2]", "a[1]"]


def test_estimates_grow_with_what_takes_time() -> None:
    plain = estimate(case())
    assert estimate(case(workload=Workload(prompt=6000))) > plain
    assert estimate(case(link=Link(latency_ms=100))) > plain
    assert estimate(case(workers=(ImageSpec("f1793c1c4", "vulkan"),))) > plain


def test_each_node_needs_memory_and_a_long_prompt_a_core() -> None:
    two, five = need(case(workers=workers(2)), 8), need(case(workers=workers(5)), 8)
    assert five.memory - two.memory == 3 * plan.PLAIN_NODE_MEMORY
    assert two.cores < need(case(workload=Workload(prompt=6000)), 8).cores
    on_lavapipe = case(workers=(ImageSpec("f1793c1c4", "vulkan"),))
    assert need(on_lavapipe, 8).cores == 8


# --- shards ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_case_is_in_one_shard(count: int) -> None:
    parts = [Shard(i, count).of(ALL) for i in range(1, count + 1)]
    ids = [case.id for part in parts for case in part]
    assert sorted(ids) == sorted(case.id for case in ALL)


def test_shards_take_about_as_long() -> None:
    loads = [sum(map(estimate, Shard(i, 3).of(ALL))) for i in (1, 2, 3)]
    assert max(loads) - min(loads) <= max(map(estimate, ALL))


def test_a_shard_does_not_depend_on_the_order_of_the_files() -> None:
    ids = {case.id for case in Shard(1, 3).of(ALL)}
    assert {case.id for case in Shard(1, 3).of(ALL[::-1])} == ids


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/2", "1/", "1/2/3", "-1/2"])
def test_a_wrong_shard_says_what_is_allowed(text: str) -> None:
    with pytest.raises(InputError, match="not a shard"):
        Shard.parse(text)


def test_a_shard_is_read() -> None:
    assert Shard.parse("2/5") == Shard(2, 5)
    assert str(Shard(2, 5)) == "2/5"


# --- flavours -------------------------------------------------------------------------------------


def _kinds(cases: list[Case]) -> set[str]:
    return {spec.flavour for case in cases for spec in case.images}


def test_a_flavour_brings_its_simulated_devices_and_no_other_backend() -> None:
    assert _kinds(in_flavours(ALL, ["cpu"], KNOWN)) == {"cpu", "simdev"}
    assert "vulkan" in _kinds(in_flavours(ALL, ["cpu", "vulkan"], KNOWN))
    assert in_flavours(ALL, [], KNOWN) == ALL


def test_an_unknown_flavour_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown flavour 'cpuu' \(did you mean 'cpu'\?\)"):
        in_flavours(ALL, ["cpuu"], KNOWN)


# --- turns ----------------------------------------------------------------------------------------


def test_every_case_runs_once_before_any_runs_again() -> None:
    jobs = plan.jobs([case(id="a[1]"), case(id="a[2]")], {"a[1]": 9, "a[2]": 1}, 2)
    turns = turns_left(jobs, {}, repeat=2)
    assert [(t.case, t.number) for t in turns] == [
        ("a[1]", 1),
        ("a[2]", 1),
        ("a[1]", 2),
        ("a[2]", 2),
    ]


def test_what_is_done_or_blocked_is_not_run() -> None:
    jobs = plan.jobs([case(id="a[1]"), case(id="a[2]"), case(id="a[3]")], {}, 2)
    turns = turns_left(jobs, {"a[1]": 2, "a[2]": 1}, 2, blocked=["a[3]"])
    assert [(t.case, t.number) for t in turns] == [("a[2]", 2)]


# --- the budget of cores and memory ---------------------------------------------------------------


def _work(file: Path, need: Need, log: Path, name: str) -> None:
    with Ledger(file, Need(2, 1000 * MIB, 15)).claim(need):
        with log.open("a") as out:
            out.write(f"+{name}\n")
        time.sleep(1)  # longer than a loaded machine takes to start the others
        with log.open("a") as out:
            out.write(f"-{name}\n")


def _at_once(tmp_path: Path, *needs: Need) -> int:
    """The most that ran at the same time."""
    log = tmp_path / "log"
    context = multiprocessing.get_context("spawn")
    started = [
        context.Process(target=_work, args=(tmp_path / "ledger.json", need, log, str(number)))
        for number, need in enumerate(needs)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(30)
        assert process.exitcode == 0
    now, most = 0, 0
    for line in log.read_text().split():
        now += 1 if line[0] == "+" else -1
        most = max(most, now)
    assert now == 0
    return most


def test_no_more_cores_are_taken_than_there_are(tmp_path: Path) -> None:
    assert _at_once(tmp_path, *[Need(1, MIB)] * 4) == 2


def test_no_more_memory_is_taken_than_there_is(tmp_path: Path) -> None:
    assert _at_once(tmp_path, *[Need(0.1, 600 * MIB)] * 3) == 1


def test_small_cases_run_side_by_side(tmp_path: Path) -> None:
    assert _at_once(tmp_path, *[Need(0.1, MIB)] * 4) > 2


def test_the_engines_networks_are_a_limit(tmp_path: Path) -> None:
    assert _at_once(tmp_path, *[Need(0.1, MIB, 7)] * 3) == 2


def test_a_case_bigger_than_the_machine_runs_alone(tmp_path: Path) -> None:
    assert _at_once(tmp_path, Need(64, MIB), Need(64, MIB), Need(0.1, MIB)) < 3


def test_what_a_dead_process_took_is_free_again(tmp_path: Path) -> None:
    file = tmp_path / "ledger.json"
    dying = multiprocessing.get_context("spawn").Process(target=_die_holding, args=(file,))
    dying.start()
    dying.join(30)
    assert dying.exitcode == 9
    assert file.read_text() != "[]"
    with Ledger(file, Need(2, MIB)).claim(Need(2, MIB)):
        pass
    assert file.read_text() == "[]"


def _die_holding(file: Path) -> None:
    with Ledger(file, Need(2, MIB)).claim(Need(2, MIB)):
        os._exit(9)
