"""The decisive cases of 28047, and the change that flips each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import docker
import pytest

from lab import engine
from tests.integration.conftest import (
    AFFECTED,
    CRASH,
    FIXED,
    Ran,
    RunLab,
    lab_command,
    scenario_text,
)

DECISIVE = (
    f"({AFFECTED} or {FIXED}) and not offload and not 5w-{AFFECTED} and not 3w-{AFFECTED}-nkvo"
    " and not vulkan"
)


@pytest.fixture(scope="module")
def decisive(run_lab: RunLab) -> Ran:
    return run_lab("28047", "-k", DECISIVE)


def test_every_decisive_case_passes(decisive: Ran) -> None:
    verdicts = decisive.verdicts()
    wrong = {case: v for case, v in verdicts.items() if v[0] not in ("pass", "skip")}
    assert not wrong, decisive.output
    assert decisive.code == 0
    assert len(verdicts) > 30
    assert verdicts[f"28047[glm-dsa-2w-{AFFECTED}]"][1].startswith("crash of head in warmup")
    assert verdicts[f"28047[glm-dsa-2w-{FIXED}]"][1] == "ok, output right"


def test_a_case_that_needs_hardware_is_skipped_with_the_reason(decisive: Ran) -> None:
    verdict, reason = decisive.verdicts()[f"28047[glm-dsa-2w-{AFFECTED}-rdma]"]
    assert (verdict, "rdma" in reason) == ("skip", True)


def test_results_name_the_build_that_really_ran(decisive: Ran) -> None:
    case = json.loads((decisive.case(f"glm-dsa-2w-{FIXED}") / "case.json").read_text())
    labels = case["image"]["labels"]
    assert f"b{labels['rpclab.build']}" in case["ran"]
    assert labels["rpclab.source"] in case["ran"]


def test_judging_again_needs_no_engine_and_agrees(decisive: Ran) -> None:
    done = subprocess.run(
        lab_command("judge", str(decisive.run)),
        env=os.environ | {"DOCKER_HOST": "unix:///nonexistent.sock"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "changed" not in done.stdout


def test_a_tampered_reference_is_wrong_output(decisive: Ran, tmp_path: Path) -> None:
    case = tmp_path / "case"
    shutil.copytree(decisive.case(f"glm-dsa-2w-{FIXED}"), case)
    right = json.loads((case / "reference.json").read_text())
    right[0]["logprobs"][-1] += 0.1
    (case / "reference.json").write_text(json.dumps(right))
    done = subprocess.run(lab_command("judge", str(case)), capture_output=True, text=True)
    assert done.returncode == 1
    assert "wrong-output" in done.stdout


def test_reproduce_sh_crashes_with_the_same_signature(
    decisive: Ran, client: docker.DockerClient, tmp_path: Path
) -> None:
    case = decisive.case(f"glm-dsa-2w-{AFFECTED}")
    image = json.loads((case / "case.json").read_text())["image"]["id"]
    cli = str(engine.buildkit_cli())
    made = subprocess.run([cli, "create", image], capture_output=True, text=True, check=True)
    try:
        source = f"{made.stdout.strip()}:/opt/llama.cpp"
        subprocess.run([cli, "cp", source, str(tmp_path / "bin")], check=True, capture_output=True)
    finally:
        subprocess.run([cli, "rm", made.stdout.strip()], check=True, capture_output=True)
    # The binaries want Debian 13's C library, which the host may not have; nothing else is taken
    # from the image.
    output = client.containers.run(
        image,
        entrypoint=["bash", f"/run/{case.name}/reproduce.sh"],
        environment={"LLAMA_BIN": "/bin-copy"},
        volumes=[f"{tmp_path / 'bin'}:/bin-copy:ro", f"{decisive.run}:/run:ro"],
        network_mode="none",
        remove=True,
        stdout=True,
        stderr=True,
    ).decode()
    assert "the head ended: exit 134" in output
    assert "[create_node] invalid data ptr" in output


FLIPS = {
    "a crash case at the fixed pin": (
        f'pin = "{FIXED}"\nmodel = "glm-dsa"\nworkers = 2\n{CRASH}',
        ("expected crash of head in warmup", "got ok"),
    ),
    "an ok case at the affected pin": (
        f'pin = "{AFFECTED}"\nmodel = "deepseek4"\nworkers = 2\nexpect = {{ outcome = "ok" }}',
        ("expected ok", "got crash of head in warmup"),
    ),
    "a wrong signature": (
        f'pin = "{AFFECTED}"\nmodel = "glm-dsa"\nworkers = 2\ntag = "signature"\n'
        + CRASH.replace("create-node-invalid-data-ptr", "op-limit"),
        ("expected crash", "op-limit", "got crash", "create-node-invalid-data-ptr"),
    ),
    "a wrong node": (
        f'pin = "{AFFECTED}"\nmodel = "glm-dsa"\nworkers = 2\ntag = "node"\n'
        + CRASH.replace('node = "head"', 'node = "worker1"'),
        ("expected crash of worker1", "got crash of head"),
    ),
    "a wrong phase": (
        f'pin = "{AFFECTED}"\nmodel = "glm-dsa"\nworkers = 2\ntag = "phase"\n'
        + CRASH.replace('"warmup"', '"decode"'),
        ("in decode", "in warmup"),
    ),
    "a wrong exit code": (
        f'pin = "{AFFECTED}"\nmodel = "glm-dsa"\nworkers = 2\ntag = "exit"\n'
        + CRASH.replace("134", "139"),
        ("exit 139", "exit 134"),
    ),
}


@pytest.fixture(scope="module")
def flipped(run_lab: RunLab) -> Ran:
    return run_lab(scenario_text("\n".join(f"[[case]]\n{text}" for text, _ in FLIPS.values())))


@pytest.mark.parametrize("index", range(len(FLIPS)), ids=list(FLIPS))
def test_a_flip_fails_and_names_both_outcomes(flipped: Ran, index: int) -> None:
    text, parts = list(FLIPS.values())[index]
    words = dict(line.split(" = ", 1) for line in text.splitlines() if line.count(" = ") == 1)
    slug = f"{words['model']}-2w-{words['pin']}"
    slug = "-".join(s for s in (slug, words.get("tag")) if s).replace('"', "")
    verdict, reason = flipped.verdicts()[f"test[{slug}]"]
    assert verdict == "fail"
    assert all(part in reason for part in parts), reason
    assert "\n" not in reason


def test_flips_end_in_exit_code_1_and_three_lines_each(flipped: Ran) -> None:
    assert flipped.code == 1
    assert flipped.output.count("evidence: ") >= len(FLIPS)
