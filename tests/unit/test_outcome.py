"""Evidence -> outcome: every word, and what tells it from its neighbours."""

from pathlib import Path
from typing import Any

import pytest
from fake_evidence import (
    ANSWERS,
    DECODE,
    END,
    GLUED,
    HEALTHY,
    LOAD,
    LOST,
    PREFILL,
    RECORDED,
    START,
    WARMUP,
    answer,
    crashed,
    made,
)

from lab.evidence import Evidence
from lab.outcome import Outcome, classify


def test_a_case_that_answers_as_without_rpc_is_ok(tmp_path: Path) -> None:
    outcome = classify(made(tmp_path / "case"))
    assert outcome.outcome == "ok"
    assert (outcome.node, outcome.phase, outcome.signature, outcome.exit) == (None,) * 4
    assert sorted(outcome.alive) == ["head", "worker1", "worker2"]
    assert outcome.max_logprob_diff == 0
    assert outcome.shutdown == "exit 0"
    assert outcome.words() == "ok"


@pytest.mark.parametrize(
    ("until", "phase"),
    [
        (START, "start"),
        (LOAD, "load"),
        (WARMUP, "warmup"),
        (PREFILL, "prefill"),
        (DECODE, "decode"),
    ],
)
def test_a_crash_of_the_head_names_the_phase_it_was_in(
    tmp_path: Path, until: int, phase: str
) -> None:
    evidence = made(
        tmp_path / "case", until=until, exits={"head": (134, until + 0.5)}, answers=None
    )
    outcome = classify(evidence)
    assert (outcome.outcome, outcome.node, outcome.phase) == ("crash", "head", phase)
    assert (outcome.exit, outcome.signal) == (134, "SIGABRT")


def test_the_crash_line_counts_though_the_next_message_is_glued_to_it(tmp_path: Path) -> None:
    outcome = classify(crashed(tmp_path / "case"))
    assert outcome == Outcome(
        "crash",
        node="head",
        phase="warmup",
        signature="create-node-invalid-data-ptr",
        logged_by="worker2",
        line=GLUED,
        exit=134,
        signal="SIGABRT",
        alive=["worker1", "worker2"],
        facts={"buffers": {}, "misplaced": []},
    )


def test_a_worker_that_computed_proves_the_warmup_where_the_head_lost_its_last_lines(
    tmp_path: Path,
) -> None:
    evidence = made(
        tmp_path / "case",
        until=LOAD,
        exits={"head": (134, WARMUP)},
        logs={"worker2": [(WARMUP - 0.1, GLUED)]},
    )
    assert classify(evidence).phase == "warmup"


def test_the_node_that_died_first_is_the_one_that_crashed(tmp_path: Path) -> None:
    evidence = made(
        tmp_path / "case",
        until=DECODE,
        exits={"head": (134, DECODE + 0.2), "worker1": (139, DECODE + 0.1)},
        logs={"head": [(DECODE + 0.2, LOST)]},
    )
    outcome = classify(evidence)
    assert (outcome.outcome, outcome.node, outcome.phase) == ("crash", "worker1", "decode")
    assert (outcome.exit, outcome.signal) == (139, "SIGSEGV")
    assert (outcome.signature, outcome.logged_by) == ("rpc-remote-crashed", "head")
    assert outcome.alive == ["worker2"]


@pytest.mark.parametrize("worker_end", [DECODE + 0.1, DECODE + 0.3])
def test_a_worker_that_aborts_is_the_cause_whichever_end_the_engine_noted_first(
    tmp_path: Path, worker_end: float
) -> None:
    evidence = made(
        tmp_path / "case",
        until=DECODE,
        exits={
            "head": (134, DECODE + 0.2),
            "worker1": (134, worker_end),
            "worker2": (134, DECODE + 0.25),
        },
        logs={"head": [(DECODE + 0.2, LOST)], "worker2": [(DECODE, "simdev: TOP_K failed")]},
    )
    outcome = classify(evidence)
    assert (outcome.node, outcome.signature, outcome.alive) == ("worker2", "op-limit", [])


def test_a_crashed_worker_is_a_crash_though_the_head_only_waits(tmp_path: Path) -> None:
    evidence = made(
        tmp_path / "case",
        until=DECODE,
        exits={"worker2": (134, DECODE + 0.1)},
        events=[(60, "over-budget", {"phase": "decode", "seconds": 50.0}), (61, "shutdown", {})],
        nodes={"head": {"running": False, "exit": 137, "finished": 1796100872 + 62}},
    )
    outcome = classify(evidence)
    assert (outcome.outcome, outcome.node) == ("crash", "worker2")


def test_the_more_telling_signature_wins_over_the_one_that_follows_from_it(tmp_path: Path) -> None:
    evidence = crashed(tmp_path / "case")
    assert LOST in evidence.log_path("head").read_text(encoding="utf-8")
    assert classify(evidence).signature == "create-node-invalid-data-ptr"


def test_without_a_signature_the_last_line_of_the_dead_node_matters(tmp_path: Path) -> None:
    evidence = made(
        tmp_path / "case",
        until=DECODE,
        exits={"head": (139, DECODE + 0.1)},
        logs={"head": [(DECODE, "slot update_slots: id  0 | task 0 | decoding  "), (DECODE, " ")]},
    )
    outcome = classify(evidence)
    assert outcome.signature is outcome.logged_by is None
    assert outcome.line == "slot update_slots: id  0 | task 0 | decoding"


def test_a_crash_in_shutdown_is_not_a_crash_of_the_work(tmp_path: Path) -> None:
    outcome = classify(
        made(
            tmp_path / "case",
            exits={"head": (134, END)},
            logs={"head": [(END, "terminate called without an active exception")]},
        )
    )
    assert outcome.outcome == "ok"
    assert outcome.shutdown == "exit 134"
    assert "head" in outcome.alive


@pytest.mark.parametrize(
    ("until", "phase"),
    [
        (START, "start"),
        (LOAD, "load"),
        (WARMUP, "warmup"),
        (PREFILL, "prefill"),
        (DECODE, "decode"),
    ],
)
def test_a_phase_over_its_budget_is_a_hang(tmp_path: Path, until: int, phase: str) -> None:
    outcome = classify(
        made(
            tmp_path / "case",
            until=until,
            events=[(70, "over-budget", {"phase": phase, "seconds": 60.0}), (70.1, "shutdown", {})],
            nodes={"head": {"running": False, "exit": 137, "finished": 1796100872 + 81}},
        )
    )
    assert (outcome.outcome, outcome.node, outcome.phase) == ("hang", "head", phase)
    assert outcome.reason == "more than 60 s"
    assert outcome.shutdown == "exit 137"
    assert outcome.exit is None
    assert outcome.words() == f"hang at head in {phase} - more than 60 s"


def test_a_head_that_exits_by_itself_has_refused(tmp_path: Path) -> None:
    refusal = "0.00.030.000 E srv    load_model: failed to load model, '/models/x.gguf'"
    outcome = classify(
        made(
            tmp_path / "case",
            until=LOAD,
            exits={"head": (1, LOAD + 0.1)},
            logs={"head": [(LOAD, refusal)]},
        )
    )
    assert (outcome.outcome, outcome.node, outcome.phase) == ("refused", "head", "load")
    assert (outcome.exit, outcome.signal) == (1, None)
    assert (outcome.signature, outcome.line) == ("gguf-load-failed", refusal)


def test_an_error_for_an_answer_is_a_refusal(tmp_path: Path) -> None:
    error = 'HTTP 500: {"error":\n {"code":500,"message":"Compute error."}}'
    outcome = classify(made(tmp_path / "case", answers=answer(error=error, tokens=[])))
    assert (outcome.outcome, outcome.node) == ("refused", "head")
    assert outcome.reason == (
        'request 1: HTTP 500: {"error": {"code":500,"message":"Compute error."}}'
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokens": [351, 316, 345]}, "request 1: token 3 of 3 differs from the reference"),
        ({"tokens": [350, 317, 344]}, "request 1: token 1 of 3 differs from the reference"),
        ({"tokens": [351, 316]}, "request 1: token 3 of 3 differs from the reference"),
        ({"prompt_tokens": 47}, "request 1: 47 prompt tokens, not 48"),
        ({"prompt_tokens": None}, "request 1: None prompt tokens, not 48"),
        ({"logprobs": [-0.4032548666000366, -1.06, -0.7269562482833862]}, "differ by up to 0.0107"),
        (
            {"logprobs": [-0.4032548666000366, None, -0.7269562482833862]},
            "request 1: the log-probability of token 2 is None, not -1.049307942390442",
        ),
    ],
)
def test_an_answer_unlike_the_reference_is_wrong_output(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    outcome = classify(made(tmp_path / "case", answers=answer(**changes)))
    assert (outcome.outcome, outcome.node, outcome.phase) == ("wrong-output", "head", "decode")
    assert outcome.reason is not None
    assert reason in outcome.reason


def test_log_probabilities_may_differ_within_the_tolerance(tmp_path: Path) -> None:
    near = [-0.4032548666000366, -1.0498, -0.7269562482833862]
    outcome = classify(made(tmp_path / "case", answers=answer(logprobs=near)))
    assert outcome.outcome == "ok"
    assert outcome.max_logprob_diff == pytest.approx(0.00049, abs=1e-5)


TOP = [[[351, -0.403]], [[316, -1.049], [317, -1.06], [318, -1.08]], [[344, -0.727]]]
UNDECIDED = [{**ANSWERS[0], "top": TOP}]


@pytest.mark.parametrize(
    ("tokens", "changes", "outcome"),
    [
        ([351, 317, 1], {"ties": True, "tolerance": 0.01}, "ok"),
        ([351, 318, 1], {"ties": True, "tolerance": 0.01}, "wrong-output"),
        ([351, 319, 1], {"ties": True, "tolerance": 0.01}, "wrong-output"),
        ([350, 316, 344], {"ties": True, "tolerance": 0.01}, "wrong-output"),
        ([351, 317, 1], {"tolerance": 0.01}, "wrong-output"),
    ],
)
def test_another_token_is_right_only_where_the_reference_is_nearly_undecided(
    tmp_path: Path, tokens: list[int], changes: dict[str, Any], outcome: str
) -> None:
    workload = {"prompt": 48, "predict": 3, **changes}
    evidence = made(
        tmp_path / "case",
        answers=answer(tokens=tokens),
        reference=UNDECIDED,
        case={"workload": workload},
    )
    found = classify(evidence)
    assert (found.outcome, found.ties) == (outcome, int(outcome == "ok"))


def test_the_second_answer_is_compared_too(tmp_path: Path) -> None:
    evidence = made(
        tmp_path / "case", answers=ANSWERS + answer(tokens=[1, 2, 3]), reference=ANSWERS * 2
    )
    outcome = classify(evidence)
    assert outcome.outcome == "wrong-output"
    assert (outcome.reason or "").startswith("request 2: token 1 ")


def test_without_rpc_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    outcome = classify(made(tmp_path / "case", case={"workers": 0}, reference=None))
    assert (outcome.outcome, outcome.reason) == ("ok", "no RPC: this is a reference")


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (
            {"until": START, "events": [(2, "lab-error", {"what": "no answer\n  next: look"})]},
            "no answer next: look",
        ),
        (
            {"exits": {"worker1": (137, DECODE)}, "nodes": {"worker1": {"oom_killed": True}}},
            "killed at its memory limit",
        ),
        ({"exits": {"toxiproxy": (2, DECODE)}}, "toxiproxy did not live to the end"),
        ({"nodes": {"toxiproxy": None}}, "toxiproxy did not live to the end"),
        ({"nodes": {"head": None}}, "the head was never started"),
        ({"answers": None}, "no answer was recorded, though the head lived"),
        ({"answers": []}, "no answer was recorded, though the head lived"),
        ({"reference": None}, "there is no reference answer to compare with"),
        ({"reference": ANSWERS * 2}, "1 answers, but 2 reference answers"),
    ],
)  # fmt: skip
def test_a_failure_of_the_lab_is_an_error_and_says_which(
    tmp_path: Path, evidence: dict[str, Any], reason: str
) -> None:
    outcome = classify(made(tmp_path / "case", **evidence))
    assert (outcome.outcome, outcome.reason) == ("error", reason)


def test_a_failure_of_the_lab_hides_a_crash(tmp_path: Path) -> None:
    evidence = crashed(tmp_path / "case", events=[(5, "lab-error", {"what": "no space left"})])
    assert classify(evidence).outcome == "error"


@pytest.mark.parametrize("missing", ["nodes.json", "events.jsonl"])
def test_a_case_that_was_cut_short_is_an_error(tmp_path: Path, missing: str) -> None:
    evidence = made(tmp_path / "case", until=HEALTHY)
    (evidence.path / missing).unlink()
    outcome = classify(evidence)
    assert outcome.outcome == "error"
    assert outcome.reason == "the evidence is incomplete: the lab was stopped in mid-case"


@pytest.mark.parametrize("case", ["glm-dsa-2w-f1793c1c4", "llama-2w-f1793c1c4"])
def test_recorded_evidence_is_classified_as_it_was(case: str) -> None:
    evidence = Evidence(RECORDED / case)
    recorded = evidence.read("outcome.json")
    # A later version may say more, never something else.
    assert classify(evidence).to_json() | recorded == classify(evidence).to_json()
