"""However a lab ends, nothing of it stays; nothing of another lab goes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import psutil
import pytest

from lab.owner import OWNER, RUN
from tests.integration.conftest import FIXED, lab_command, scenario_text

SLOW = scenario_text(
    f'[[case]]\npin = "{FIXED}"\nmodel = "llama"\nworkers = [1, 2]\n'
    'link = { latency_ms = 4000 }\nexpect = { outcome = "ok" }'
)
"""Cases that stay in mid-case for a minute or more."""


class Lab:
    """A lab at work on the slow scenario, in a process group of its own."""

    def __init__(self, client: docker.DockerClient, folder: Path) -> None:
        self._client = client
        folder.mkdir()
        file = folder / "slow.toml"
        file.write_text(SLOW)
        self.runs = folder / "runs"
        self.process = subprocess.Popen(
            lab_command("run", str(file), "-n", "2"),
            env=os.environ | {"RPCLAB_RUNS": str(self.runs)},
            stdout=(folder / "out").open("w"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def things(self) -> list[str]:
        """Containers, networks and volumes of this lab."""
        names = [run.name for run in self.runs.glob("*")]
        api = self._client.api
        found = []
        for name in names:
            query = {"label": f"{RUN}={name}"}
            found += [c["Id"] for c in api.containers(all=True, filters=query)]
            found += [n["Id"] for n in api.networks(filters=query)]
            found += [v["Name"] for v in api.volumes(filters=query)["Volumes"] or []]
        return found

    def wait_mid_case(self) -> None:
        """Wait until both cases have a running head."""

        def heads() -> int:
            timelines = self.runs.glob("*/*/events.jsonl")
            return sum("head-started" in timeline.read_text() for timeline in timelines)

        wait(lambda: heads() == 2, 120)

    def guards(self) -> list[psutil.Process]:
        """The guards of this lab's processes."""
        owners = {
            c["Labels"][OWNER]
            for run in self.runs.glob("*")
            for c in self._client.api.containers(all=True, filters={"label": f"{RUN}={run.name}"})
        }
        return [
            p
            for p in psutil.process_iter(["cmdline"])
            if "lab.guard" in (p.info["cmdline"] or []) and p.info["cmdline"][-1] in owners
        ]

    def end(self) -> None:
        """Kill what is left of it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def wait(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)


@pytest.fixture
def lab(client: docker.DockerClient, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(client, tmp_path / "lab")
    try:
        lab.wait_mid_case()
        yield lab
    finally:
        lab.end()
        wait(lambda: not lab.things(), 15)


@pytest.fixture
def other(client: docker.DockerClient, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(client, tmp_path / "other")
    try:
        lab.wait_mid_case()
        yield lab
    finally:
        lab.end()
        wait(lambda: not lab.things(), 15)


def test_kill_9_leaves_nothing_and_another_lab_alone(lab: Lab, other: Lab) -> None:
    before = sorted(other.things())
    assert len(lab.things()) >= 6
    lab.process.kill()
    wait(lambda: not lab.things(), 10)
    assert sorted(other.things()) == before


def test_kill_9_of_the_guards_too_is_swept_by_the_next_command(lab: Lab, other: Lab) -> None:
    before = sorted(other.things())
    guards = lab.guards()
    assert len(guards) == 2
    for guard in guards:
        guard.kill()
    lab.process.kill()
    time.sleep(3)
    assert lab.things(), "something else than the next command swept: this test shows nothing"
    subprocess.run(lab_command("list"), check=True, capture_output=True)
    assert lab.things() == []
    assert sorted(other.things()) == before


def test_ctrl_c_is_clean(lab: Lab) -> None:
    os.killpg(lab.process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    assert lab.process.wait(timeout=20) == 130
    wait(lambda: not lab.things(), 5)
    verdicts = list(lab.runs.glob("*/*/verdict.json"))
    assert not any('"pass"' in file.read_text() for file in verdicts)
