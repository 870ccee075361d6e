"""Real heads, one after another, in one container: what each logs of its placement.

The container has no network but its loopback, where some workers run; the head is stopped as soon
as its log has what is asked for. A head that crashes later has logged its placement before. One
that ends before that is started once more: a worker whose last head was stopped may not be back.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path

from docker.errors import APIError, NotFound

from lab import engine, owner
from lab.errors import LabError
from lab.guard import Guard
from lab.images import ImageSpec
from lab.images.types import find
from lab.topology import MODELS, RIGHTS

PIN = "f1793c1c4"
FIRST_PORT = 50051
PLACED = "sched_reserve: |failed to create context|error loading model|invalid argument"
"""The head's caches are made, or it has given up."""
UP = "all slots are idle|waiting for new tasks"
"""It has been through its warm-up."""

SCRIPT = r"""
start() { ggml-rpc-server -p $((FIRST + $1)) >/dev/null 2>&1 & eval "W$1=\$!"; }
gone() { ! kill -0 "$1" 2>/dev/null; }
head() {
    id=$1 workers=$2 until=$3 log=/heads/$1.log
    shift 3
    for attempt in 1 2; do
        for i in $(seq 0 $((workers - 1))); do
            eval "pid=\$W$i"
            if gone "$pid"; then start "$i"; sleep 0.3; fi
        done
        rm -f /heads/$id.exit
        "$@" >"$log" 2>&1 &
        pid=$!
        for _ in $(seq 400); do
            if gone $pid || grep -qE "$until" "$log"; then break; fi
            sleep 0.02
        done
        if gone $pid; then wait $pid; echo "$?" >/heads/$id.exit
        else kill -9 $pid; wait $pid; fi 2>/dev/null
        if grep -qE "$until" "$log"; then break; fi
    done
}
for i in 0 1 2 3 4; do start $i; done
sleep 0.5
"""


@dataclass(frozen=True)
class Head:
    """A head to start: the model's file, how many workers, its own arguments."""

    model: Path
    workers: int
    args: tuple[str, ...]
    until: str = PLACED
    """It is stopped when a line of its log matches."""


@dataclass(frozen=True)
class Seen:
    """What became of one: its log, and its exit code (None: stopped by the lab)."""

    lines: list[str]
    exit: int | None


def endpoints(workers: int) -> list[str]:
    """Where the workers of a head listen, inside the container."""
    return [f"127.0.0.1:{FIRST_PORT + index}" for index in range(workers)]


def run(heads: list[Head], *, pin: str = PIN) -> list[Seen]:
    """Start them in turn, each until its log has what is asked for.

    Raises:
        LabError: the image is missing, or the container failed.
        NoEngineError: no container engine answers.
    """
    client = engine.client(timeout=1800)
    image = find(client, ImageSpec(pin).tag)
    if image is None:
        raise LabError("no such image", where=ImageSpec(pin).tag, hint=f"rpclab images build {pin}")
    with tempfile.TemporaryDirectory(prefix="rpclab-heads-") as name:
        folder = Path(name)
        folder.chmod(0o777)  # the image's user is not this one
        script = folder / "heads.sh"
        script.write_text(_script(heads))
        script.chmod(0o755)
        models = {str(head.model.parent): {"bind": MODELS, "mode": "ro"} for head in heads}
        guard = Guard(str(owner.Owner.of(os.getpid())))
        container = client.containers.create(
            image.ref,
            ["bash", "/heads/heads.sh"],
            network_mode="none",
            labels=owner.labels("heads", folder.name),
            tmpfs={"/tmp": "size=64m"},  # noqa: S108 - inside the container
            volumes={**models, name: {"bind": "/heads", "mode": "rw"}},
            mem_limit="8g",
            **RIGHTS,
        )
        try:
            container.start()
            code = container.wait()["StatusCode"]
            told = container.logs().decode(errors="replace")
        finally:
            with contextlib.suppress(NotFound, APIError):
                container.remove(force=True)
            guard.dismiss()
        if code:
            raise LabError(f"the container of the heads exited with {code}", where=told[-500:])
        return [_seen(folder, index) for index in range(len(heads))]


def _script(heads: list[Head]) -> str:
    lines = [f"FIRST={FIRST_PORT}", SCRIPT]
    for index, head in enumerate(heads):
        rpc = ["--rpc", ",".join(endpoints(head.workers))] if head.workers else []
        words = ["llama-server", *rpc, "-m", f"{MODELS}/{head.model.name}", *head.args]
        how = [str(index), str(head.workers), head.until, *words, "-lv", "5"]
        lines.append(f"head {shlex.join(how)}")
    return "\n".join([*lines, "exit 0", ""])


def _seen(folder: Path, index: int) -> Seen:
    log, code = folder / f"{index}.log", folder / f"{index}.exit"
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return Seen(lines, int(code.read_text()) if code.is_file() else None)
