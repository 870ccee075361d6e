"""Heads against workers of other builds, from a run's evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_case import case

from lab.case import load_cases
from lab.errors import InputError
from lab.evidence import Evidence
from lab.grid import grids, word
from lab.images import ImageSpec
from lab.outcome import Outcome
from lab.reproduce import script
from lab.scenario import Link
from lab.topology import NodePlan, Plan

ROWS = """
report = "skew"
title = "builds"
[[case]]
pin = ["f1793c1c4", "b11434"]
worker_pin = {workers}
model = "llama"
workers = 1
expect = {{ outcome = "ok" }}
"""


def image(build: int) -> dict[str, Any]:
    return {"labels": {"rpclab.build": str(build)}}


def record(run: Path, head: int, worker: int) -> None:
    evidence = Evidence.create(run, f"llama-1w-{head}-{worker}")
    facts = {"model": {"name": "llama"}, "workers": 1, "image": image(head)}
    evidence.write("case.json", facts | {"worker_images": [image(worker)]})
    evidence.event("link-up", node="worker1", protocol=f"{worker // 100}.0.0")


def test_heads_are_rows_and_workers_columns_in_the_order_of_builds(tmp_path: Path) -> None:
    for head, worker in [(900, 900), (900, 1000), (1000, 900), (1000, 1000)]:
        record(tmp_path, head, worker)
    (grid,) = grids(tmp_path)
    lines = grid.markdown().splitlines()
    assert lines[2] == "| head \\ worker | b900 9.0.0 | b1000 10.0.0 |"
    assert lines[4].startswith("| b900 9.0.0 | ")
    assert lines[5].startswith("| b1000 10.0.0 | ")


def test_a_run_of_one_build_is_no_grid(tmp_path: Path) -> None:
    record(tmp_path, 900, 900)
    assert grids(tmp_path) == []


def test_an_answer_without_the_worker_is_told_apart() -> None:
    on_worker = {"buffers": {"weights": {"CPU": 0.1, "RPC0[worker1:50051]": 1.0}}}
    assert word(Outcome("ok", facts=on_worker)) == "works"
    assert word(Outcome("ok", facts={"buffers": {"weights": {"CPU": 1.1}}})) == "dropped"
    assert word(Outcome("crash", node="head", phase="start")) == "crash in start"


def test_a_worker_of_another_build(tmp_path: Path) -> None:
    file = tmp_path / "skew.toml"
    file.write_text(ROWS.format(workers='["b10724", "f1793c1c4"]'))
    found = {its.slug: its for its in load_cases(file)}
    assert found["llama-1w-b11434-b10724"].head.pin == "b11434"
    assert found["llama-1w-b11434-b10724"].workers[0].pin == "b10724"


@pytest.mark.parametrize("workers", ['["b1"]', '["b10724", "b10724"]', "[]"])
def test_a_wrong_worker_pin_names_the_field(tmp_path: Path, workers: str) -> None:
    file = tmp_path / "skew.toml"
    file.write_text(ROWS.format(workers=workers))
    with pytest.raises(InputError, match=r"case\.0\.worker_pin"):
        load_cases(file)


def test_the_script_takes_two_directories(tmp_path: Path) -> None:
    its = case(workers=(ImageSpec("b11434"),))
    node = NodePlan("image", ("-t", "1"))
    plan = Plan(node, (node,), "toxiproxy", tmp_path / "m.gguf", Link(), {})
    text = script(its, plan, "b10705")
    assert "worker1 was of another build (b11434): give its directory as LLAMA_WORKER_BIN" in text
    assert '"$worker_bin/ggml-rpc-server"' in text
