"""`reproduce.sh`: plain bash, plain binaries, everything on loopback."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from made_case import case

from lab.reproduce import script
from lab.scenario import Case, Workload
from lab.topology import Plan


def plan_of(wanted: Case, **changes: Any) -> Plan:
    facts: dict[str, Any] = {
        "image": "sha256:1",
        "toxiproxy": "sha256:2",
        "model": Path("glm-dsa-7932d0827b4e.gguf"),
        "workers": wanted.workers,
        "head_args": wanted.args,
        "worker_args": wanted.worker_args,
        "latency_ms": wanted.link.latency_ms,
        "labels": {},
    }
    return Plan(**facts | changes)


def text_of(wanted: Case, **changes: Any) -> str:
    return script(wanted, plan_of(wanted, **changes), "b10705 (sdist), for pin f1793c1c4")


CASES = {
    "two workers": case(),
    "no worker": case(workers=0),
    "sixteen workers": case(workers=16),
    "many at once": case(workload=Workload(prompt=48, predict=4, requests=4, together=True)),
    "one by one": case(workload=Workload(prompt=48, predict=4, requests=2)),
    "quoted": case(args=("-ot", "blk\\.[0-3]\\..*=RPC0[worker1:50051]", "--alias", "it's $HOME")),
}


@pytest.mark.parametrize("wanted", CASES.values(), ids=CASES.keys())
def test_the_script_is_valid_bash(tmp_path: Path, wanted: Case) -> None:
    path = tmp_path / "reproduce.sh"
    path.write_text(text_of(wanted), encoding="utf-8")
    done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_script_says_what_it_is() -> None:
    assert text_of(case(), latency_ms=20).splitlines()[:5] == [
        "#!/usr/bin/env bash",
        "# 28047[glm-dsa-2w-f1793c1c4]",
        "# ran here: b10705 (sdist), for pin f1793c1c4",
        "# expected: crash, create-node-invalid-data-ptr",
        "# here each link also had 20 ms of latency each way",
    ]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_each_worker_has_its_port_and_the_head_knows_them_all(workers: int) -> None:
    lines = text_of(case(workers=workers)).splitlines()
    ports = [50050 + number for number in range(1, workers + 1)]
    started = [line.split(" -p ")[1].split()[0] for line in lines if "/ggml-rpc-server" in line]
    assert started == [str(port) for port in ports]
    head = next(line for line in lines if '/llama-server"' in line)
    if workers:
        assert f"--rpc {','.join(f'127.0.0.1:{port}' for port in ports)} -m" in head
    else:
        assert "--rpc" not in head


def test_nothing_of_the_containers_is_left_in_it() -> None:
    text = text_of(CASES["quoted"])
    for word in ("docker", "worker1:", "/models/gl", "0.0.0.0", "python"):  # noqa: S104
        assert word not in text.replace("../models", "")


def test_a_tensor_override_names_the_endpoint_on_loopback() -> None:
    overrides = ",".join(f"blk.{i}.*=RPC{i - 1}[worker{i}:{50050 + i}]" for i in (1, 11))
    text = text_of(case(workers=11, args=("-ot", overrides)))
    assert shlex.quote("blk.1.*=RPC0[127.0.0.1:50051],blk.11.*=RPC10[127.0.0.1:50061]") in text


def fake_binaries(folder: Path, server: str) -> None:
    """`llama-server`, `ggml-rpc-server` and `curl` that write down how they were called."""
    for name, then in {
        "llama-server": server,
        "ggml-rpc-server": "exec sleep 20",
        "curl": "",
        # The script waits for nobody here.
        "sleep": '[ "$1" = 20 ] && exec /bin/sleep 20; /bin/sleep 0.05',
    }.items():
        path = folder / name
        path.write_text(
            f"#!/bin/bash\ncd {shlex.quote(str(folder))}\n"
            f'printf "%s\\n" "$@" >>{name}.args\necho $$ >>{name}.pid\n{then}\n',
            encoding="utf-8",
        )
        path.chmod(0o755)


def run(folder: Path, wanted: Case) -> str:
    path = folder / "reproduce.sh"
    path.write_text(text_of(wanted), encoding="utf-8")
    done = subprocess.run(
        ["bash", path, "/my/model.gguf"],
        env={
            "PATH": f"{folder}:{os.environ['PATH']}",
            "LLAMA_BIN": str(folder),
            "TMPDIR": str(folder),
        },
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return done.stdout


def test_arguments_reach_the_binaries_word_by_word(tmp_path: Path) -> None:
    fake_binaries(tmp_path, "exec sleep 20")
    out = run(tmp_path, CASES["quoted"])
    assert "the head lives" in out
    args = (tmp_path / "llama-server.args").read_text(encoding="utf-8").splitlines()
    assert args[:4] == ["--rpc", "127.0.0.1:50051,127.0.0.1:50052", "-m", "/my/model.gguf"]
    assert args[-4:] == ["-ot", "blk\\.[0-3]\\..*=RPC0[127.0.0.1:50051]", "--alias", "it's $HOME"]
    asked = (tmp_path / "curl.args").read_text(encoding="utf-8")
    assert '"n_predict": 16' in asked


def test_many_requests_at_once_are_all_sent(tmp_path: Path) -> None:
    fake_binaries(tmp_path, "exec sleep 20")
    assert "the head lives" in run(tmp_path, CASES["many at once"])
    asked = (tmp_path / "curl.args").read_text(encoding="utf-8")
    assert asked.count('"n_predict": 4') == 4


def test_a_head_that_dies_is_told_with_its_exit_code(tmp_path: Path) -> None:
    fake_binaries(tmp_path, 'echo "Remote RPC server crashed" >&2; exit 134')
    out = run(tmp_path, case())
    assert "the head ended: exit 134" in out
    assert "Remote RPC server crashed" in out


def test_no_node_outlives_the_script(tmp_path: Path) -> None:
    fake_binaries(tmp_path, "exec sleep 20")
    run(tmp_path, case())
    for name, count in (("llama-server", 1), ("ggml-rpc-server", 2)):
        pids = (tmp_path / f"{name}.pid").read_text(encoding="utf-8").split()
        assert len(pids) == count
        assert not any(psutil.pid_exists(int(pid)) for pid in pids)
