"""A night finds a case that sometimes crashes, for real: a fault at a random time makes one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from lab.errors import Exit
from lab.nightly.compare import Kind
from tests.integration.conftest import AFFECTED, CRASH, FIXED, lab_command, scenario_text

ROW = f"""
[[case]]
pin = "{FIXED}"
model = "llama"
workers = 1
tag = "TAG"
workload = {{{{ prompt = 24, predict = 100 }}}}
FAULTS
expect = {{{{ outcome = "ok" }}}}
""".replace("{{", "{").replace("}}", "}")
PLANTED = (
    'faults = [{ kind = "kill", on = "worker1", at = { between = [0.0, 6.0] } },\n'
    '  { kind = "latency", on = "worker1", latency_ms = 10 }]'
)


def test_a_case_with_a_random_fault_is_flaky_and_one_without_is_not(tmp_path: Path) -> None:
    file = tmp_path / "flake.toml"
    flaky = ROW.replace("TAG", "flaky").replace("FAULTS", PLANTED)
    file.write_text(scenario_text(flaky + ROW.replace("TAG", "steady").replace("FAULTS", "")))
    done = subprocess.run(
        lab_command("nightly", str(file), "--repeat", "6", "--no-build", "-n", "2"),
        env=os.environ | {"RPCLAB_RUNS": str(tmp_path / "runs")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    (result,) = (tmp_path / "runs").rglob("result.json")
    words = {case["id"]: case["word"] for case in json.loads(result.read_text())["cases"]}
    assert {name.rpartition("-")[2].rstrip("]"): word for name, word in words.items()} == {
        "flaky": "flaky",
        "steady": "pass",
    }, done.stdout
    assert done.returncode == Kind.FLAKY


def test_a_case_that_fails_in_another_way_is_a_changed_signature(tmp_path: Path) -> None:
    head = f'[[case]]\npin = "{AFFECTED}"\nmodel = "glm-dsa"\nworkers = 2\n'
    gone = 'faults = [{ kind = "kill", on = "worker1" }]\n'
    file = tmp_path / "change.toml"
    codes = []
    for planted in ("", gone):
        file.write_text(scenario_text(head + planted + CRASH))
        done = subprocess.run(
            lab_command("nightly", str(file), "--no-build"),
            env=os.environ | {"RPCLAB_RUNS": str(tmp_path / "runs")},
            capture_output=True,
            text=True,
            timeout=600,
        )
        codes.append(done.returncode)
    assert codes == [Exit.OK, Exit.FAIL | Kind.CHANGED_SIGNATURE], done.stdout
    assert "changed signature" in done.stdout
