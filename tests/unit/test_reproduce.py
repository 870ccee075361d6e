"""`reproduce.sh`: plain bash, plain binaries, everything on loopback."""

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from made_case import case, workers

from lab.case import Case
from lab.images import ImageSpec
from lab.reproduce import HTTP_PORT, script
from lab.scenario import Link, Workload
from lab.topology import NodePlan, Plan


def plan_of(wanted: Case, **changes: Any) -> Plan:
    facts: dict[str, Any] = {
        "head": NodePlan("sha256:1", wanted.args),
        "workers": tuple(NodePlan("sha256:1", wanted.worker_args) for _ in wanted.workers),
        "toxiproxy": "sha256:2",
        "model": Path("glm-dsa-7932d0827b4e.gguf"),
        "link": wanted.link,
        "labels": {},
    }
    return Plan(**facts | changes)


def text_of(wanted: Case, **changes: Any) -> str:
    return script(wanted, plan_of(wanted, **changes), "b10705 (sdist), for pin f1793c1c4")


CASES = {
    "two workers": case(),
    "no worker": case(workers=()),
    "sixteen workers": case(workers=workers(16)),
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
    assert text_of(case(), link=Link(latency_ms=20)).splitlines()[:5] == [
        "#!/usr/bin/env bash",
        "# 28047[glm-dsa-2w-f1793c1c4]",
        "# ran here: b10705 (sdist), for pin f1793c1c4",
        "# expected: crash, create-node-invalid-data-ptr",
        "# here each link also had 20 ms of latency each way",
    ]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_each_worker_has_its_port_and_the_head_knows_them_all(count: int) -> None:
    text = text_of(case(workers=workers(count)))
    lines = text.splitlines()
    ports = [50050 + number for number in range(1, count + 1)]
    started = [
        line.split(" -p ")[1].split()[0] for line in lines if line.startswith('"$worker_bin/ggml-')
    ]
    assert started == [str(port) for port in ports]
    if count:
        assert f" --rpc {','.join(f'127.0.0.1:{port}' for port in ports)} -ngl" in text
    else:
        assert "--rpc" not in text


def test_rpc_stands_where_the_case_wants_it() -> None:
    text = text_of(case(args=("-ot", "x=CPU", "{rpc}", "-t", "1")))
    assert " -ot x=CPU --rpc 127.0.0.1:50051,127.0.0.1:50052 -t 1 " in text


def test_a_draft_model_an_environment_and_a_flavour_are_told() -> None:
    mixed = (ImageSpec("f1793c1c4"), ImageSpec("f1793c1c4", "simdev"))
    text = text_of(case(workers=mixed), draft=Path("llama-1.gguf"), env={"SIMDEV_RULES": "a b"})
    assert '-md "$(dirname "$model")/llama-1.gguf"' in text
    assert "\nexport SIMDEV_RULES='a b'\n" in text
    assert "\n# here worker2 ran the flavour simdev (images/simdev/Dockerfile)\n" in text
    assert "worker1 ran the flavour" not in text


def test_nothing_of_the_containers_is_left_in_it() -> None:
    text = text_of(CASES["quoted"])
    for word in ("docker", "worker1:", "/models/gl", "0.0.0.0", "python"):  # noqa: S104
        assert word not in text.replace("../models", "")


def test_a_tensor_override_names_the_endpoint_on_loopback() -> None:
    overrides = ",".join(f"blk.{i}.*=RPC{i - 1}[worker{i}:{50050 + i}]" for i in (1, 11))
    text = text_of(case(workers=workers(11), args=("-ot", overrides)))
    assert shlex.quote("blk.1.*=RPC0[127.0.0.1:50051],blk.11.*=RPC10[127.0.0.1:50061]") in text


SERVER = """
import http.server, os, sys
class Head(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.answer(b"{}")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open("asked", "ab") as file:
            file.write(body + b"\\n")
        self.answer(b'{"content": "x"}')
    def answer(self, body):
        self.send_response(200); self.end_headers(); self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Head).serve_forever()
"""


def fake_binaries(folder: Path, server: str | None = None) -> int:
    """`llama-server` and `ggml-rpc-server` that write down how they were called; the HTTP port.

    `server` is what the head does after that; by default it answers each request.
    """
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = int(sock.getsockname()[1])
    (folder / "server.py").write_text(SERVER, encoding="utf-8")
    (folder / "model.gguf").touch()
    for name, then in {
        "llama-server": server or f"exec {sys.executable} server.py {port}",
        "ggml-rpc-server": "exec sleep 20",
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
    return port


def run(folder: Path, wanted: Case, port: int) -> subprocess.CompletedProcess[str]:
    path = folder / "reproduce.sh"
    path.write_text(text_of(wanted).replace(str(HTTP_PORT), str(port)), encoding="utf-8")
    return subprocess.run(
        ["bash", path, folder / "model.gguf"],
        env={
            "PATH": f"{folder}:{os.environ['PATH']}",
            "LLAMA_BIN": str(folder),
            "TMPDIR": str(folder),
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_arguments_reach_the_binaries_word_by_word(tmp_path: Path) -> None:
    done = run(tmp_path, CASES["quoted"], fake_binaries(tmp_path))
    assert "the head lives" in done.stdout
    args = (tmp_path / "llama-server.args").read_text(encoding="utf-8").splitlines()
    assert args[-6:-4] == ["--rpc", "127.0.0.1:50051,127.0.0.1:50052"]
    assert args[-4:] == ["-ot", "blk\\.[0-3]\\..*=RPC0[127.0.0.1:50051]", "--alias", "it's $HOME"]
    (asked,) = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert json.loads(asked)["n_predict"] == 16


def test_many_requests_at_once_are_all_sent(tmp_path: Path) -> None:
    run(tmp_path, CASES["many at once"], fake_binaries(tmp_path))
    asked = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert [json.loads(body)["n_predict"] for body in asked] == [4] * 4


CRASH = 'echo "{}" >&2; exit {}'
LINE = "[create_node] invalid data ptr"


@pytest.mark.parametrize(
    ("server", "code"),
    [
        (CRASH.format(LINE, 134), 0),
        (CRASH.format("something else", 134), 1),
        (CRASH.format(LINE, 0), 1),
        (None, 1),
    ],
    ids=["as expected", "another signature", "another exit code", "no crash"],
)
def test_the_exit_code_says_whether_it_came_out_as_expected(
    tmp_path: Path, server: str | None, code: int
) -> None:
    done = run(tmp_path, case(), fake_binaries(tmp_path, server))
    assert done.returncode == code, done.stdout + done.stderr


def test_a_head_that_dies_is_told_with_its_exit_code(tmp_path: Path) -> None:
    port = fake_binaries(tmp_path, CRASH.format("Remote RPC server crashed", 134))
    out = run(tmp_path, case(), port).stdout
    assert "the head ended: exit 134" in out
    assert "Remote RPC server crashed" in out


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    port = fake_binaries(tmp_path)
    (tmp_path / "ggml-rpc-server").unlink()
    done = run(tmp_path, case(), port)
    assert (done.returncode, "ggml-rpc-server" in done.stderr) == (2, True)


def test_no_node_outlives_the_script(tmp_path: Path) -> None:
    run(tmp_path, case(), fake_binaries(tmp_path))
    for name, count in (("llama-server", 1), ("ggml-rpc-server", 2)):
        pids = (tmp_path / f"{name}.pid").read_text(encoding="utf-8").split()
        assert len(pids) == count
        assert not any(psutil.pid_exists(int(pid)) for pid in pids)
