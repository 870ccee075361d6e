"""Outcomes that no report of a crash shows: hang, a dead worker, and failures of the lab itself."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import APIError

from lab.case import load_cases
from lab.evidence import Evidence
from lab.owner import CASE, RUN
from lab.runner import Runner
from tests.integration.conftest import FIXED, scenario_text

HANG = f"""
[[case]]
pin = "{FIXED}"
model = "llama"
workers = 1
link = {{ latency_ms = 3000 }}
expect = {{ outcome = "hang", phase = "load" }}
"""
LONG = f"""
[[case]]
pin = "{FIXED}"
model = "llama"
workers = 1
workload = {{ prompt = 24, predict = 1900 }}
expect = {{ outcome = "ok" }}
"""


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    runner = Runner(tmp_path / "run")
    try:
        yield runner
    finally:
        runner.close()


def run(runner: Runner, text: str, meanwhile: Callable[[Path], None] | None = None) -> Evidence:
    """Run a scenario's only case, and something else while it answers."""
    file = runner.run.parent / "test.toml"
    file.write_text(text)
    (case,) = load_cases(file)
    thread = threading.Thread(target=meanwhile, args=(runner.run / case.slug,), daemon=True)
    if meanwhile:
        thread.start()
    _, path = runner.run_case(case)
    if meanwhile:
        thread.join(30)
    return Evidence(path)


def once_it_decodes(client: docker.DockerClient, node: str, act: str) -> Callable[[Path], None]:
    """Do something to a node's container after the first token."""

    def meanwhile(path: Path) -> None:
        deadline = time.monotonic() + 120
        while not any(e["event"] == "first-token" for e in Evidence(path).events()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        query: dict[str, Any] = {"label": [f"{RUN}={path.parent.name}", f"{CASE}={path.name}"]}
        for container in client.containers.list(filters=query):
            command = " ".join(container.attrs["Config"]["Cmd"])
            if node in command:
                getattr(container, act)()

    return meanwhile


def outcome(evidence: Evidence) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((evidence.path / "outcome.json").read_text())
    return data | {"verdict": evidence.read("verdict.json")["verdict"]}


def test_over_its_budget_a_phase_is_a_hang_and_leaves_stacks(runner: Runner) -> None:
    evidence = run(runner, scenario_text(HANG, budget="{ start = 30, load = 2 }"))
    found = outcome(evidence)
    assert (found["outcome"], found["phase"], found["verdict"]) == ("hang", "load", "pass")
    assert "TID" in (evidence.path / "stacks" / "head.txt").read_text()
    assert "TID" in (evidence.path / "stacks" / "worker1.txt").read_text()


def test_within_its_budget_the_same_case_is_no_hang(runner: Runner) -> None:
    text = scenario_text(HANG.replace("3000", "1"), budget="{ start = 30, load = 30 }")
    found = outcome(run(runner, text))
    assert (found["outcome"], found["verdict"]) == ("ok", "fail")


def test_a_worker_killed_while_it_decodes_is_a_crash_in_decode(
    runner: Runner, client: docker.DockerClient
) -> None:
    kill = once_it_decodes(client, "ggml-rpc-server", "kill")
    found = outcome(run(runner, scenario_text(LONG), kill))
    assert (found["outcome"], found["node"], found["phase"]) == ("crash", "worker1", "decode")
    assert (found["exit"], found["verdict"]) == (137, "fail")


def test_a_paused_worker_is_a_hang_in_decode(runner: Runner, client: docker.DockerClient) -> None:
    pause = once_it_decodes(client, "ggml-rpc-server", "pause")
    found = outcome(run(runner, scenario_text(LONG, budget="{ decode = 5 }"), pause))
    assert (found["outcome"], found["phase"]) == ("hang", "decode")


def test_a_dead_proxy_is_the_labs_error_never_a_crash(
    runner: Runner, client: docker.DockerClient
) -> None:
    kill = once_it_decodes(client, "-proxy-metrics", "kill")
    found = outcome(run(runner, scenario_text(LONG), kill))
    assert (found["outcome"], found["verdict"]) == ("error", "error")
    assert "toxiproxy" in found["reason"]


def test_containers_removed_by_somebody_else_are_the_labs_error(
    runner: Runner, client: docker.DockerClient
) -> None:
    def remove(path: Path) -> None:
        once_it_decodes(client, "ggml-rpc-server", "pause")(path)
        for container in client.containers.list(filters={"label": f"{RUN}={path.parent.name}"}):
            with contextlib.suppress(APIError):  # the lab may be removing it already
                container.remove(force=True)

    found = outcome(run(runner, scenario_text(LONG, budget="{ decode = 20 }"), remove))
    assert found["verdict"] == "error"
