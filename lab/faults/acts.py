"""What faults and their tests do to one node of a topology, and what they see of it from outside.

Every function raises `LabError`, or an error of the engine's, where it cannot do what it says.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from docker.errors import APIError
from docker.utils import parse_bytes

from lab.errors import LabError

if TYPE_CHECKING:
    from lab.topology import Topology

NANO_CPUS = (os.cpu_count() or 1) * 1_000_000_000
"""What a node may use when no fault limits it, in billionths of a processor."""
LISTENS_SECONDS = 10.0
WORKER_PORT = 50052

KILLED = 137
STATE_SECONDS = 2.0
"""How long a process may take to stop or go on after the signal."""

CHILD = "$(cat /proc/1/task/1/children)"
"""llama.cpp's process: process 1 is an init."""


def state(topology: Topology, name: str) -> dict[str, Any]:
    """The engine's `State` of a node's container."""
    found: dict[str, Any] = _inspect(topology, name)["State"]
    return found


def shell(topology: Topology, name: str, script: str) -> str:
    """The output of a shell script that the node's own user runs in it."""
    result = topology.nodes[name].container.exec_run(["sh", "-c", script])
    output = str(result.output.decode(errors="replace"))
    if result.exit_code:
        raise LabError(f"exit {result.exit_code} of {script!r}: {output.strip()}", where=name)
    return output


def signal(topology: Topology, name: str, signal: str) -> None:
    """Send a signal to llama.cpp's process itself."""
    script = f"kill -{signal.removeprefix('SIG')} {CHILD}"
    result = topology.nodes[name].container.exec_run(["sh", "-c", script])
    # The node may end before the shell does, which is then killed with it.
    if result.exit_code not in (0, KILLED):
        output = result.output.decode(errors="replace").strip()
        raise LabError(f"exit {result.exit_code} of {script!r}: {output}", where=name)


def process_state(topology: Topology, name: str) -> str:
    """The kernel's state of llama.cpp's process, such as `S` or `T`, as `ps` on the engine's host
    sees it."""
    table = topology.nodes[name].container.top(ps_args="-o pid,stat,args")
    for _, stat, command in table["Processes"] or []:
        if not command.startswith("tini"):
            return str(stat)
    raise LabError(f"no process of llama.cpp in {table['Processes']}", where=name)


def worker_health(topology: Topology, name: str) -> str:
    """`running`, `stopped` (SIGSTOP), `paused`, `exited`."""
    status = str(state(topology, name)["Status"])
    if status == "running":
        with contextlib.suppress(APIError, LabError):  # it may end at this moment
            return "stopped" if process_state(topology, name).startswith("T") else status
    return status


def memory(topology: Topology, name: str) -> int | None:
    """Bytes that a node's llama.cpp holds, without files that are mapped; None where it does not
    run, or is paused and cannot be asked."""
    if state(topology, name)["Status"] != "running":
        return None
    status = shell(topology, name, f"for p in {CHILD}; do grep RssAnon /proc/$p/status; done")
    return int(status.split()[1]) * 1024


def traffic(topology: Topology, worker: str) -> int:
    """Bytes that a worker has received and sent, as its own kernel counts them.

    toxiproxy counts a connection's bytes at its end only. A worker's network is its link.
    """
    counts = shell(topology, worker, "grep eth0: /proc/net/dev").partition(":")[2].split()
    return int(counts[0]) + int(counts[8])


def cpu_seconds(topology: Topology, name: str) -> float:
    """Processor time that a node has used."""
    return float(_stats(topology, name)["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9


def limit(topology: Topology, name: str, **limits: int) -> dict[str, int]:
    """Change `memory` (bytes) or `nano_cpus`, and read it back; what it was before."""
    keys = {"memory": "Memory", "nano_cpus": "NanoCpus"}
    wanted = {keys[key]: value for key, value in limits.items()}
    before = _inspect(topology, name)["HostConfig"]
    body = wanted | ({"MemorySwap": wanted["Memory"]} if "Memory" in wanted else {})
    api = topology.nodes[name].container.client.api
    url = f"{api.base_url}/v{api.api_version}/containers/{topology.nodes[name].container.id}/update"
    answer = api.post(url, json=body, timeout=30)  # the SDK's own update has no NanoCpus
    if not answer.ok:
        raise LabError(f"the engine refused {body}: {answer.text.strip()}", where=name)
    after = _inspect(topology, name)["HostConfig"]
    found = {key: after[key] for key in wanted}
    if found != wanted:
        raise LabError(f"asked for {wanted}, found {found}", where=name)
    return {key: before[key] for key in wanted}


def memory_limit(topology: Topology, name: str) -> int:
    """Bytes that the plan gives a node."""
    plan = topology.plan
    return int(parse_bytes(plan.head_memory if name == "head" else plan.worker_memory))


def wait_listening(topology: Topology, worker: str) -> None:
    """Wait until a worker that was started again takes connections."""
    deadline = time.monotonic() + LISTENS_SECONDS
    probe = ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{WORKER_PORT}"]
    while topology.nodes[worker].container.exec_run(probe).exit_code:
        if time.monotonic() > deadline:
            raise LabError(f"does not listen within {LISTENS_SECONDS:g} s", where=worker)
        time.sleep(0.02)


def _inspect(topology: Topology, name: str) -> dict[str, Any]:
    container = topology.nodes[name].container
    found: dict[str, Any] = container.client.api.inspect_container(container.id)
    return found


def _stats(topology: Topology, name: str) -> dict[str, Any]:
    container = topology.nodes[name].container
    found: dict[str, Any] = container.client.api.stats(container.id, stream=False, one_shot=True)
    return found
