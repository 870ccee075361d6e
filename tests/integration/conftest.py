"""Integration tests: the real engine, real llama.cpp, real toxiproxy."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from lab import engine

AFFECTED, FIXED = "f1793c1c4", "1548a240e"
"""The two pins that the tests use."""

CRASH = """
[case.expect]
outcome = "crash"
node = "head"
phase = "warmup"
exit = 134
signature = "create-node-invalid-data-ptr"
logged_by = "worker"
alive = ["worker"]
"""


@dataclass(frozen=True)
class Ran:
    """A finished `rpclab run`."""

    code: int
    output: str
    run: Path

    def verdicts(self) -> dict[str, tuple[str, str]]:
        """Case id -> (verdict, reason)."""
        found = {}
        for file in self.run.glob("*/verdict.json"):
            data = json.loads(file.read_text())
            found[data["case"]] = (data["verdict"], data["reason"])
        return found

    def case(self, slug: str) -> Path:
        """A case's evidence directory."""
        return self.run / slug


RunLab = Callable[..., Ran]


def lab_command(*args: str) -> list[str]:
    """The command line of `rpclab`, whatever is on PATH."""
    return [sys.executable, "-m", "lab", *args]


def scenario_text(cases: str, **keys: Any) -> str:
    """A scenario file's text: one case after another, with the usual head arguments."""
    more = "\n".join(f"{key} = {value}" for key, value in keys.items())
    return f"""
report = "test"
title = "a test of the lab"
args = ["-ngl", "99", "-c", "2048", "-t", "1", "-np", "1", "-fit", "off"]
workload = {{ prompt = 24, predict = 8 }}
{more}
{cases}
"""


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    """The engine."""
    return engine.client()


@pytest.fixture(scope="session")
def run_lab(tmp_path_factory: pytest.TempPathFactory) -> RunLab:
    """`rpclab run` of a scenario text or a report's number, evidence in a folder of its own."""

    def run(scenario: str, *args: str) -> Ran:
        folder = tmp_path_factory.mktemp("lab")
        file = folder / "test.toml"
        name = scenario
        if "\n" in scenario:
            file.write_text(scenario)
            name = str(file)
        done = subprocess.run(
            lab_command("run", name, *args),
            env=os.environ | {"RPCLAB_RUNS": str(folder / "runs")},
            capture_output=True,
            text=True,
            timeout=1200,
        )
        runs = sorted((folder / "runs").glob("*"))
        output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
        assert len(runs) == 1, output
        return Ran(done.returncode, output, runs[0])

    return run
