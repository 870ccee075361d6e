"""Outcome -> verdict: what agrees, what does not, and what the reason says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_evidence import DECODE, GLUED, RECORDED, answer, crashed, made

from lab.errors import InputError
from lab.evidence import Evidence
from lab.outcome import Outcome
from lab.scenario import Expect
from lab.verdict import judge, judge_evidence, record

CRASH: dict[str, Any] = {
    "outcome": "crash",
    "node": "head",
    "phase": "warmup",
    "signature": "create-node-invalid-data-ptr",
    "logged_by": "worker",
    "exit": 134,
    "alive": ["worker"],
}
HAPPENED = "crash of head in warmup (create-node-invalid-data-ptr, exit 134)"


def test_the_crash_that_was_expected_passes(tmp_path: Path) -> None:
    _, verdict = judge_evidence(crashed(tmp_path / "case", case={"expect": CRASH}))
    assert (verdict.verdict, verdict.reason, verdict.line) == ("pass", HAPPENED, GLUED)


@pytest.mark.parametrize(
    ("flip", "reason"),
    [
        ({"node": "worker"}, "node head, not worker"),
        ({"node": "worker2"}, "node head, not worker2"),
        ({"phase": "prefill"}, "phase warmup, not prefill"),
        (
            {"signature": "op-limit"},
            "signature create-node-invalid-data-ptr, not op-limit",
        ),
        ({"logged_by": "head"}, "logged_by worker2, not head"),
        ({"logged_by": "worker1"}, "logged_by worker2, not worker1"),
        ({"exit": 139}, "exit 134, not 139"),
        ({"alive": ["head"]}, "no head alive at the end"),
        ({"dead": ["worker"]}, "a worker alive at the end"),
    ],
)
def test_each_expectation_alone_turns_pass_into_fail(
    tmp_path: Path, flip: dict[str, Any], reason: str
) -> None:
    _, verdict = judge_evidence(crashed(tmp_path / "case", case={"expect": CRASH | flip}))
    assert verdict.verdict == "fail"
    assert verdict.reason.startswith("expected crash of ")
    assert f"got {HAPPENED} [{reason}]" in verdict.reason
    assert "\n" not in verdict.reason


@pytest.mark.parametrize(
    ("expect", "evidence", "reason"),
    [
        ({"outcome": "ok"}, crashed, f"expected ok, got {HAPPENED}"),
        (CRASH, made, f"expected {HAPPENED}, got ok"),
        ({"outcome": "refused"}, made, "expected refused, got ok"),
        ({"outcome": "wrong-output"}, made, "expected wrong-output, got ok"),
        ({"outcome": "hang", "phase": "load"}, made, "expected hang in load, got ok"),
        ({"outcome": "hang", "phase": "load"}, crashed, f"expected hang in load, got {HAPPENED}"),
    ],
)
def test_the_reason_of_a_failure_names_both_outcomes(
    tmp_path: Path, expect: dict[str, Any], evidence: Callable[..., Evidence], reason: str
) -> None:
    _, verdict = judge_evidence(evidence(tmp_path / "case", case={"expect": expect}))
    assert (verdict.verdict, verdict.reason) == ("fail", reason)


def test_an_ok_with_wrong_output_fails(tmp_path: Path) -> None:
    _, verdict = judge_evidence(made(tmp_path / "case", answers=answer(tokens=[351, 351, 344])))
    assert verdict.verdict == "fail"
    assert verdict.reason == (
        "expected ok, got wrong-output at head in decode"
        " - request 1: token 2 of 3 differs from the reference"
    )


def test_a_wrong_output_that_was_expected_passes(tmp_path: Path) -> None:
    evidence = made(
        tmp_path / "case",
        answers=answer(tokens=[351, 351, 344]),
        case={"expect": {"outcome": "wrong-output"}},
    )
    assert judge_evidence(evidence)[1].verdict == "pass"


@pytest.mark.parametrize("expect", [CRASH, {"outcome": "ok"}, {"outcome": "refused"}])
def test_a_failure_of_the_lab_is_never_pass_nor_fail(
    tmp_path: Path, expect: dict[str, Any]
) -> None:
    event = (5, "lab-error", {"what": "toxiproxy does not answer"})
    _, verdict = judge_evidence(crashed(tmp_path / "case", events=[event], case={"expect": expect}))
    assert verdict.verdict == "error"
    assert verdict.reason == "the lab failed: toxiproxy does not answer"


def test_every_difference_is_named() -> None:
    outcome = Outcome("crash", node="worker1", phase="decode", signature="ggml-assert", exit=139)
    verdict = judge(outcome, Expect.model_validate(CRASH))
    assert verdict.reason.endswith(
        "[node worker1, not head; phase decode, not warmup; "
        "signature ggml-assert, not create-node-invalid-data-ptr; "
        "logged_by None, not worker; exit 139, not 134; no worker alive at the end]"
    )


PLACED: dict[str, Any] = {
    "buffers": {"weights": {"RPC0[worker1:50051]": 1.83, "RPC0[worker2:50052]": 1.18}},
    "misplaced": [
        {"layer": 5, "device": "RPC1", "what": "fused A", "on": "RPC0"},
        {"layer": 5, "device": "RPC1", "what": "fused B", "on": "RPC0"},
    ],
}


@pytest.mark.parametrize(
    ("expect", "differences"),
    [
        ({}, []),
        ({"buffers": {"weights": {"RPC0[worker1:50051]": 1.84}}, "misplaced": [5]}, []),
        ({"buffers": {"kv": {"RPC0[worker1:50051]": 0}}}, []),
        (
            {"buffers": {"weights": {"RPC0[worker1:50051]": 1.85}}},
            ["weights on RPC0[worker1:50051]: 1.83 MiB, not 1.85"],
        ),
        (
            {"buffers": {"kv": {"RPC0[worker1:50051]": 0.5}}},
            ["kv on RPC0[worker1:50051]: 0 MiB, not 0.5"],
        ),
        ({"misplaced": []}, ["misplaced layers [5], not []"]),
        ({"misplaced": [5, 6]}, ["misplaced layers [5], not [5, 6]"]),
    ],
)
def test_placement_that_is_expected_is_held_against_the_log(
    expect: dict[str, Any], differences: list[str]
) -> None:
    outcome = Outcome("ok", max_logprob_diff=0.0, facts=PLACED)
    verdict = judge(outcome, Expect(outcome="ok", **expect))
    if not differences:
        assert verdict.verdict == "pass"
    else:
        assert verdict.verdict == "fail"
        assert f"[{'; '.join(differences)}]" in verdict.reason


def test_a_case_that_no_host_can_serve_is_skipped_with_its_reason(tmp_path: Path) -> None:
    evidence = made(tmp_path / "case", case={"skip": "needs a host labelled rdma"})
    outcome, verdict = judge_evidence(evidence)
    assert (verdict.verdict, verdict.reason) == ("skip", "needs a host labelled rdma")
    record(evidence, outcome, verdict)
    assert evidence.read("outcome.json") is None


@pytest.mark.parametrize("case", ["glm-dsa-2w-f1793c1c4", "llama-2w-f1793c1c4"])
def test_recorded_evidence_gets_the_verdict_that_it_got(case: str) -> None:
    evidence = Evidence(RECORDED / case)
    _, verdict = judge_evidence(evidence)
    assert {"case": f"mini[{case}]", **verdict.to_json()} == evidence.read("verdict.json")


def test_judging_writes_nothing(tmp_path: Path) -> None:
    evidence = made(tmp_path / "case", until=DECODE, exits={"head": (134, DECODE + 1)})
    before = {path: path.stat().st_mtime_ns for path in evidence.path.rglob("*")}
    judge_evidence(evidence)
    assert {path: path.stat().st_mtime_ns for path in evidence.path.rglob("*")} == before


def test_recording_keeps_what_was_recorded_before(tmp_path: Path) -> None:
    evidence = made(tmp_path / "case")
    outcome, verdict = judge_evidence(evidence)
    record(evidence, outcome, verdict)
    failed = judge(outcome, Expect.model_validate(CRASH))
    record(evidence, outcome, failed)
    record(evidence, outcome, verdict)
    words = [evidence.read(f"verdict{n}.json")["verdict"] for n in (".1", ".2", "")]
    assert words == ["pass", "fail", "pass"]
    assert evidence.read("verdict.json")["case"] == "mini[llama-2w-f1793c1c4]"


def test_evidence_with_an_expectation_that_nobody_knows_is_wrong_input(tmp_path: Path) -> None:
    evidence = made(tmp_path / "case", case={"expect": CRASH | {"signature": "gone"}})
    with pytest.raises(
        InputError, match=r"case\.json: expect: signature: unknown signature 'gone'"
    ):
        judge_evidence(evidence)
