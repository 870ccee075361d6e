"""A night's result from planted evidence, and what changed since the night before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import pytest
from fake_evidence import ANSWERS, CASE, DECODE, LOST, WARMUP, answer, crashed, made

from lab.errors import Exit, InputError
from lab.evidence import Evidence
from lab.nightly import night, summary
from lab.nightly.compare import INCOMPLETE, Change, Kind, compare, exit_code
from lab.nightly.night import Night, Plan
from lab.nightly.plan import Job, Need
from lab.nightly.result import RESULT, Result
from lab.nightly.run import Blocked, collect
from lab.verdict import judge_evidence, record

Make = Callable[..., Evidence]
"""Plants one run of a case: `made`, `crashed`, ..."""

ID = "mini[llama-2w-f1793c1c4]"
EXPECT_CRASH = {
    "expect": {
        "outcome": "crash",
        "node": "head",
        "phase": "warmup",
        "signature": "create-node-invalid-data-ptr",
    }
}


@pytest.fixture(autouse=True)
def _own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RPCLAB_RUNS", str(tmp_path / "runs"))


def ok(path: Path, **more: Any) -> Evidence:
    return made(path, **more)


def wrong(path: Path, **more: Any) -> Evidence:
    return made(path, answers=answer(tokens=[1, 2, 3]), **more)


def other_tokens(path: Path, **more: Any) -> Evidence:
    """Answers as its reference does, which is another than before."""
    other = answer(tokens=[1, 2, 3])
    return made(path, answers=other, reference=other, **more)


def crash(path: Path, **more: Any) -> Evidence:
    return crashed(path, **more)


def crash_in_decode(path: Path, **more: Any) -> Evidence:
    return crashed(path, during=DECODE, **more)


def other_crash(path: Path, **more: Any) -> Evidence:
    """The same node and phase, another log line."""
    at = WARMUP + 0.5
    logs = {"head": [(at, LOST)]}
    return made(path, until=WARMUP, exits={"head": (134, at)}, logs=logs, answers=None, **more)


def hang(path: Path, **more: Any) -> Evidence:
    over = [(WARMUP + 1.0, "over-budget", {"phase": "warmup", "seconds": 60.0})]
    return made(path, until=WARMUP, events=over, answers=None, **more)


def lab_error(path: Path, **more: Any) -> Evidence:
    return made(path, events=[(1, "lab-error", {"what": "the engine went away"})], **more)


def skipped(path: Path, **more: Any) -> Evidence:
    return made(path, case=more.pop("case", {}) | {"skip": "needs a host labelled rdma"}, **more)


def planted(path: Path, runs: Iterable[Make], *, id: str = ID, **case: Any) -> None:
    """Runs of one case in a night's directory, judged."""
    slug = id.partition("[")[2].rstrip("]")
    for make in runs:
        evidence = make(path / slug, case={"id": id} | case)
        record(evidence, *judge_evidence(evidence))


def result_of(path: Path, *ids: str, repeat: int = 1) -> Result:
    jobs = [Job(id, "mini", "f1793c1c4", Need(1, 1), 1.0) for id in ids or (ID,)]
    return collect(path, Plan({}, jobs, repeat), {}, 12.0)


def a_night(tmp_path: Path, name: str, *runs: Make, **case: Any) -> Result:
    path = tmp_path / name
    planted(path, runs, **case)
    return result_of(path, repeat=len(runs))


# --- every kind of change, and that it is not seen where it is not --------------------------------


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        (ok, crash, Kind.NEW_CRASH),
        (hang, crash, Kind.NEW_CRASH),
        (wrong, crash, Kind.NEW_CRASH),
        (crash, ok, Kind.GONE_CRASH),
        (crash, hang, Kind.GONE_CRASH),
        (crash, other_crash, Kind.CHANGED_SIGNATURE),
        (crash, crash_in_decode, Kind.CHANGED_SIGNATURE),
        (ok, hang, Kind.CHANGED_SIGNATURE),
        (hang, ok, Kind.CHANGED_SIGNATURE),
        (ok, wrong, Kind.CHANGED_OUTPUT),
        (wrong, ok, Kind.CHANGED_OUTPUT),
        (ok, other_tokens, Kind.CHANGED_OUTPUT),
        (ok, ok, None),
        (crash, crash, None),
        (hang, hang, None),
        (ok, skipped, None),
        (ok, lab_error, None),
        (skipped, crash, None),
        (lab_error, crash, None),
    ],
)
def test_a_planted_change_is_named(
    tmp_path: Path, before: Make, now: Make, kind: Kind | None
) -> None:
    changes = compare(a_night(tmp_path, "2", now), a_night(tmp_path, "1", before))
    assert [change.kind for change in changes] == ([kind] if kind else [])
    assert all(change.case == ID and change.before != change.now for change in changes)


def test_a_changed_signature_says_which(tmp_path: Path) -> None:
    [change] = compare(a_night(tmp_path, "2", other_crash), a_night(tmp_path, "1", crash))
    assert change.before == "crash of head in warmup (create-node-invalid-data-ptr)"
    assert change.now == "crash of head in warmup (rpc-remote-crashed)"


def test_other_tokens_at_a_tie_are_no_change(tmp_path: Path) -> None:
    tied = {"workload": CASE["workload"] | {"ties": True}}
    before = a_night(tmp_path, "1", ok, **tied)
    assert not compare(a_night(tmp_path, "2", other_tokens, **tied), before)


def test_a_case_that_is_new_is_no_change(tmp_path: Path) -> None:
    assert not compare(a_night(tmp_path, "2", crash), Result([]))


# --- flakes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "runs",
    [(ok, crash, ok), (crash, other_crash), (ok, wrong), (ok, other_tokens), (crash, hang)],
)
def test_runs_that_disagree_are_flaky_not_passed_or_failed(
    tmp_path: Path, runs: tuple[Make, ...]
) -> None:
    result = a_night(tmp_path, "1", *runs)
    assert result.cases[0].word == "flaky"
    changes = compare(result, Result([]))
    assert [change.kind for change in changes] == [Kind.FLAKY]
    assert exit_code(result, changes) == Kind.FLAKY
    assert f"{len(runs)} runs disagree" in result.cases[0].words()


@pytest.mark.parametrize(("make", "word"), [(ok, "pass"), (crash, "fail")])
def test_runs_that_agree_are_not(tmp_path: Path, make: Make, word: str) -> None:
    result = a_night(tmp_path, "1", make, make, make)
    assert result.cases[0].word == word
    assert not compare(result, Result([]))


def test_a_failure_of_the_lab_is_no_flake(tmp_path: Path) -> None:
    result = a_night(tmp_path, "1", ok, lab_error)
    assert result.cases[0].word == "error"
    assert exit_code(result, compare(result, Result([]))) == Exit.ERROR


def test_against_a_flaky_night_nothing_is_a_change(tmp_path: Path) -> None:
    flaky = a_night(tmp_path, "1", ok, crash)
    assert not compare(a_night(tmp_path, "2", crash), flaky)


# --- exit codes -----------------------------------------------------------------------------------


def test_every_kind_has_a_bit_of_its_own_above_those_of_exit() -> None:
    assert sorted(Kind) == [8, 16, 32, 64, 128]
    assert all(code <= 7 or code == Exit.INTERRUPTED for code in Exit)
    assert INCOMPLETE not in set(Exit)


@pytest.mark.parametrize(
    ("make", "expect", "code"),
    [
        (ok, {}, Exit.OK),
        (crash, {}, Exit.FAIL),
        (crash, EXPECT_CRASH, Exit.OK),
        (lab_error, {}, Exit.ERROR),
        (skipped, {}, Exit.OK),
    ],
)
def test_the_low_bits_are_those_of_every_verb(
    tmp_path: Path, make: Make, expect: dict[str, Any], code: Exit
) -> None:
    assert exit_code(a_night(tmp_path, "1", make, **expect), []) == code


def test_the_bits_add_up(tmp_path: Path) -> None:
    result = a_night(tmp_path, "1", crash)
    changes = [Change(kind, ID, "", "") for kind in (Kind.NEW_CRASH, Kind.FLAKY)]
    assert exit_code(result, changes) == 128 + 8 + 1


def test_what_was_not_run_is_told_and_has_a_code(tmp_path: Path) -> None:
    planted(tmp_path / "1", [ok])
    (cut := made(tmp_path / "1" / "cut", case={"id": "mini[cut]"})).event("killed here")
    result = result_of(tmp_path / "1", ID, "mini[cut]", "mini[later]")
    assert [case.id for case in result.not_run] == ["mini[cut]", "mini[later]"]
    assert exit_code(result, []) == INCOMPLETE
    assert cut.path.is_dir()


def test_too_few_repeats_are_not_all(tmp_path: Path) -> None:
    planted(tmp_path / "1", [ok])
    result = result_of(tmp_path / "1", repeat=2)
    assert result.cases[0].word == "pass"
    assert result.not_run


@pytest.mark.parametrize(
    ("word", "code"), [("skip", Exit.OK), ("error", Exit.ERROR), ("not run", INCOMPLETE)]
)
def test_a_case_without_its_image_says_why(tmp_path: Path, word: str, code: int) -> None:
    job = Job(ID, "mini", "f1793c1c4", Need(1, 1), 1.0)
    blocked = {ID: Blocked(word, "image f1793c1c4-cpu: no image")}
    result = collect(tmp_path, Plan({}, [job]), blocked, 0.0)
    assert (result.cases[0].word, exit_code(result, [])) == (word, code)
    assert "no image" in result.cases[0].words()


# --- the directory --------------------------------------------------------------------------------


def _job(id: str = ID) -> Job:
    return Job(id, "mini", "f1793c1c4", Need(0.5, 1000), 3.5)


def test_a_plan_survives(tmp_path: Path) -> None:
    file = tmp_path / "mini.toml"
    file.write_text("x = 1")
    plan = Plan({str(file): night.digest(file)}, [_job()], 3, build=False, source="sdist")
    begun = Night.begin(plan)
    assert Night.resume(str(begun.path)) == (begun, plan)
    assert Night.resume("last") == (begun, plan)


def test_a_night_does_not_go_on_with_other_scenarios(tmp_path: Path) -> None:
    file = tmp_path / "mini.toml"
    file.write_text("x = 1")
    begun = Night.begin(Plan({str(file): night.digest(file)}, [_job()]))
    file.write_text("x = 2")
    with pytest.raises(InputError, match="changed since the night began"):
        Night.resume(str(begun.path))


def test_there_may_be_no_night_to_go_on_with(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no night that could go on"):
        Night.resume("last")
    with pytest.raises(InputError, match="no night in it"):
        Night.resume(str(tmp_path))


def test_a_finished_night_is_not_the_last_unfinished(tmp_path: Path) -> None:
    begun = Night.begin(Plan({}, [_job()]))
    planted(begun.path, [ok])
    summary.write(begun.path, result_of(begun.path), [])
    with pytest.raises(InputError, match="no night that could go on"):
        Night.resume("last")


def test_only_a_verdict_is_done(tmp_path: Path) -> None:
    begun = Night.begin(Plan({}, [_job()]))
    planted(begun.path, [ok, ok])
    made(begun.path / "cut", case={"id": "mini[cut]"})
    assert begun.done() == {ID: 2}


def test_the_night_before_is_the_last_that_ran_the_case(tmp_path: Path) -> None:
    for name, make in (("1", crash), ("2", ok)):
        path = night.root() / f"{name}-nightly"
        planted(path, [make], id="mini[a]")
        if name == "1":
            planted(path, [ok], id="mini[b]")
        summary.write(path, result_of(path, "mini[a]", "mini[b]"), [])
    known = {case.id: case for case in night.history(night.earlier()).cases}
    assert known["mini[a]"].observed[0].outcome == "ok"
    assert known["mini[b]"].observed[0].outcome == "ok"
    first = night.history(night.earlier(before=night.root() / "2-nightly"))
    assert first.cases[0].observed[0].outcome == "crash"


def test_durations_are_recorded(tmp_path: Path) -> None:
    def timed(path: Path, **more: Any) -> Evidence:
        return made(path, events=[(10.5, "removed", {})], **more)

    assert a_night(tmp_path, "1", timed).durations() == {ID: 10.5}


# --- what is written ------------------------------------------------------------------------------


def test_a_result_survives(tmp_path: Path) -> None:
    result = a_night(tmp_path, "1", ok, crash)
    path = tmp_path / "1"
    summary.write(path, result, compare(result, Result([])))
    loaded = Result.load(path)
    assert loaded.cases == result.cases
    assert loaded.changes[0]["kind"] == "flaky"
    data = json.loads((path / RESULT).read_text())
    assert data["counts"]["flaky"] == 1
    assert data["cases"][0]["word"] == "flaky"


def test_junit_tells_a_flake_from_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "1"
    planted(path, [ok, crash], id="mini[flaky]")
    planted(path, [crash, crash], id="mini[fails]")
    planted(path, [ok, ok], id="mini[fine]")
    planted(path, [skipped], id="mini[skips]")
    result = result_of(path, *(f"mini[{n}]" for n in ("flaky", "fails", "fine", "skips", "later")))
    suite = xml.fromstring(summary.junit(result))  # noqa: S314 - our own
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "2",
        "errors": "0",
        "skipped": "2",
    }
    kinds = {test.get("name"): [(n.tag, n.get("type")) for n in test] for test in suite}
    assert kinds == {
        "mini[flaky]": [("failure", "flaky")],
        "mini[fails]": [("failure", "fail")],
        "mini[fine]": [],
        "mini[skips]": [("skipped", None)],
        "mini[later]": [("skipped", None)],
    }


def test_the_page_is_a_table_of_scenarios_and_pins(tmp_path: Path) -> None:
    path = tmp_path / "1"
    planted(path, [ok], id="mini[a]")
    planted(path, [crash], id="mini[b]")
    jobs = [
        Job("mini[a]", "mini", "f1793c1c4", Need(1, 1), 1.0),
        Job("mini[b]", "mini", "f1793c1c4", Need(1, 1), 1.0),
        Job("other[c]", "other", "1548a240e", Need(1, 1), 1.0),
    ]
    page = summary.markdown(
        collect(path, Plan({}, jobs), {}, 1.0),
        [Change(Kind.NEW_CRASH, "mini[b]", "ok", "crash of head")],
    )
    assert "| scenario | 1548a240e | f1793c1c4 |" in page
    assert "| mini |  | 1 pass, 1 fail |" in page
    assert "| other | 1 not run |  |" in page
    assert "- new crash: mini[b]: ok -> crash of head" in page


def test_answers_cut_short_have_no_output_to_compare(tmp_path: Path) -> None:
    def broken(path: Path, **more: Any) -> Evidence:
        return made(path, answers=[ANSWERS[0] | {"error": "the stream ended"}], **more)

    assert a_night(tmp_path, "1", broken).cases[0].observed[0].output is None
