"""Outcomes of cases with faults: what a fault did is no crash, what came of it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_evidence import DECODE, LOST, T0, made

from lab.outcome import BY_FAULT, OUT_OF_MEMORY, classify


def begun(
    kind: str, *, began: float, done: float, kills: bool = False, starves: bool = False
) -> Any:
    facts = {"fault": 0, "round": 1, "kind": kind, "on": "worker1", "targets": ["worker1"]}
    facts |= {"kills": kills, "starves": starves, "began": T0 + began}
    return (done, "fault-begin", facts)


def head_lost(path: Path, worker: tuple[int, float], *events: Any) -> Any:
    return made(
        path,
        until=DECODE,
        exits={"head": (134, DECODE + 0.3), "worker1": worker},
        logs={"head": [(DECODE + 0.3, LOST)]},
        events=events,
    )


def test_a_worker_that_a_fault_killed_did_not_crash(tmp_path: Path) -> None:
    fault = begun("kill", began=DECODE + 0.1, done=DECODE + 0.25, kills=True)
    outcome = classify(head_lost(tmp_path / "case", (137, DECODE + 0.2), fault))
    assert (outcome.outcome, outcome.node) == ("crash", "head")


def test_a_worker_that_died_by_itself_before_the_fault_did(tmp_path: Path) -> None:
    fault = begun("kill", began=DECODE + 0.4, done=DECODE + 0.5, kills=True)
    outcome = classify(head_lost(tmp_path / "case", (139, DECODE + 0.2), fault))
    assert (outcome.outcome, outcome.node) == ("crash", "worker1")


def test_a_head_that_a_fault_killed_is_told_as_that(tmp_path: Path) -> None:
    time, name, facts = begun("kill", began=DECODE + 0.2, done=DECODE + 0.4, kills=True)
    fault = (time, name, facts | {"on": "head", "targets": ["head"]})
    evidence = made(
        tmp_path / "case", until=DECODE, exits={"head": (137, DECODE + 0.3)}, events=[fault]
    )
    assert classify(evidence).signature == BY_FAULT


@pytest.mark.parametrize("ends", [DECODE + 0.2, DECODE + 0.4])
def test_a_worker_of_a_broken_pipe_is_not_the_cause(tmp_path: Path, ends: float) -> None:
    outcome = classify(head_lost(tmp_path / "case", (141, ends)))
    assert (outcome.outcome, outcome.node, outcome.exit) == ("crash", "head", 134)


@pytest.mark.parametrize("heard", [True, False])
def test_out_of_memory_is_a_crash_under_its_fault_though_the_engine_has_not_heard(
    tmp_path: Path, heard: bool
) -> None:
    fault = begun("memory", began=1, done=1.1, starves=True)
    evidence = head_lost(tmp_path / "case", (137, DECODE + 0.2), fault)
    nodes = evidence.read("nodes.json")
    nodes["worker1"]["oom_killed"] = heard
    evidence.write("nodes.json", nodes)
    outcome = classify(evidence)
    assert (outcome.outcome, outcome.node) == ("crash", "worker1")
    assert outcome.signature == OUT_OF_MEMORY


def test_out_of_memory_without_such_a_fault_is_the_labs_failure(tmp_path: Path) -> None:
    evidence = head_lost(tmp_path / "case", (137, DECODE + 0.2))
    nodes = evidence.read("nodes.json")
    nodes["worker1"]["oom_killed"] = True
    evidence.write("nodes.json", nodes)
    assert classify(evidence).outcome == "error"


def test_a_node_that_the_lab_killed_is_not_out_of_memory(tmp_path: Path) -> None:
    fault = begun("memory", began=1, done=1.1, starves=True)
    sent = (DECODE + 0.1, "signal", {"node": "worker1", "signal": "SIGKILL"})
    outcome = classify(head_lost(tmp_path / "case", (137, DECODE + 0.2), fault, sent))
    assert outcome.signature != OUT_OF_MEMORY
