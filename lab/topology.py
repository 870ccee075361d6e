"""A head, its workers and one toxiproxy on networks where the proxy is the only path.

    publish network (the only one with a way to the host, loopback ports)
        toxiproxy
    head network (internal)          worker-i network (internal), one for each worker
        toxiproxy, head                  toxiproxy, worker-i

toxiproxy listens for the head's links on its head-network address only, and for its control API
and the head's HTTP port on its publish-network address only: no worker reaches another worker,
the head, the outside, or the API that could lift its own fault.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import APIError, NotFound
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from lab.errors import LabError
from lab.evidence import Evidence
from lab.links import CONTROL_PORT, Links
from lab.rpc import wait_hello
from lab.scenario import RPC, Link
from lab.sweep import sweep_case

# The lab's own guard does the reaper's work (lab/guard.py), with no image to pull.
testcontainers_config.ryuk_disabled = True

HTTP_PORT = 8080
LINK_PORT = 50050
"""Worker i listens on 50052 and is reached by the head as `worker<i>:<50050 + i>`."""
WORKER_PORT = 50052
MODELS = "/models"

RIGHTS: dict[str, Any] = {
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "read_only": True,
    "pids_limit": 512,
}
"""What every container is denied. The images add: not root, an init as process 1."""

NO_HOST = {"com.docker.network.bridge.inhibit_ipv4": "true"}
"""The engine's host gets no address on the network, so that no node can reach its services."""


NO_WAY_OUT = {"com.docker.network.bridge.enable_ip_masquerade": "false"}
"""Published ports come in, nothing goes out: toxiproxy needs no way out either."""


NO_POOL = "available, non-overlapping IPv4 address pool"
"""The engine's words when all its networks are taken: it has about thirty unless told otherwise."""
NETWORK_SECONDS = 60.0
"""How long to wait for one."""


@dataclass
class Node:
    """One running container of a topology and what is known of its end."""

    name: str
    container: Any
    exited: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)


@dataclass(frozen=True)
class NodePlan:
    """One node to start."""

    image: str
    """The llama.cpp image, by id."""
    args: tuple[str, ...]
    """Arguments that the lab does not set itself."""
    cache: tuple[Path, str] | None = None
    """A directory here that the node keeps its cache in, and where it sees it."""


@dataclass(frozen=True)
class Plan:
    """What to start, fully resolved."""

    head: NodePlan
    workers: tuple[NodePlan, ...]
    toxiproxy: str
    """The image, by id."""
    model: Path
    link: Link
    labels: dict[str, str]
    draft: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    ready_seconds: float = 30.0
    """How long the workers and the proxy may take to answer."""
    head_memory: str = "3g"
    worker_memory: str = "2g"

    def rpc_endpoints(self) -> list[str]:
        """The `--rpc` endpoints as the head sees them."""
        return [f"worker{i}:{LINK_PORT + i}" for i in range(1, len(self.workers) + 1)]

    def head_command(self) -> list[str]:
        """The head's command line."""
        draft = ["-md", f"{MODELS}/{self.draft.name}"] if self.draft else []
        where = ["--host", "0.0.0.0", "--port", str(HTTP_PORT)]  # noqa: S104
        fixed = ["-m", f"{MODELS}/{self.model.name}", *draft, *where, "-lv", "4"]
        return ["llama-server", *fixed, *head_args(self, ",".join(self.rpc_endpoints()))]

    def worker_command(self, index: int) -> list[str]:
        """The command line of worker `index`, from 1."""
        where = ["-H", "0.0.0.0", "-p", str(WORKER_PORT)]  # noqa: S104
        return ["ggml-rpc-server", *where, *self.workers[index - 1].args]

    def commands(self) -> dict[str, list[str]]:
        """Every node's command line."""
        indices = range(1, len(self.workers) + 1)
        workers = {f"worker{i}": self.worker_command(i) for i in indices}
        return {"head": self.head_command()} | workers


def head_args(plan: Plan, endpoints: str) -> list[str]:
    """The head's arguments with `--rpc` in its place: first of all (`-ot` can only name a device
    that is known), or where the scenario wants it."""
    rpc = ["--rpc", endpoints] if endpoints else []
    if RPC not in plan.head.args:
        return [*rpc, *plan.head.args]
    at = plan.head.args.index(RPC)
    return [*plan.head.args[:at], *rpc, *plan.head.args[at + 1 :]]


class Topology:
    """Starts and removes one topology. Use as a context manager."""

    def __init__(
        self,
        client: docker.DockerClient,
        plan: Plan,
        evidence: Evidence,
        *,
        keep: bool = False,
        before_head: Callable[[Topology], None] = lambda _: None,
    ) -> None:
        self.plan, self._client, self._evidence, self._keep = plan, client, evidence, keep
        self._before_head = before_head
        self.nodes: dict[str, Node] = {}
        self._name = f"rpclab-{uuid.uuid4().hex[:8]}"
        self.links: Links
        self._last_address: dict[str, str] = {}
        self._ports: dict[int, int] = {}

    def __enter__(self) -> Topology:
        try:
            self._start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._keep:
            names = {name: node.container.name for name, node in self.nodes.items()}
            self._evidence.event("kept", head=self.url, containers=names)
            return
        self._remove()

    @property
    def url(self) -> str:
        """The head's HTTP address on this host's loopback."""
        return f"http://127.0.0.1:{self._ports[HTTP_PORT]}"

    def kill(self, name: str, signal: str) -> None:
        """Send a signal to a node; one that is gone already is no error."""
        with contextlib.suppress(NotFound, APIError):
            self.nodes[name].container.kill(signal=signal)
        self._evidence.event("signal", node=name, signal=signal)

    def stacks(self, name: str) -> str:
        """The thread stacks of a node's process, where they can be had."""
        command = "eu-stack -p $(cat /proc/1/task/1/children) 2>&1 | head -400"
        with contextlib.suppress(APIError, requests.RequestException):
            result = self.nodes[name].container.exec_run(["sh", "-c", command])
            return str(result.output.decode(errors="replace"))
        return "(no stacks: the engine did not run eu-stack in the container)"

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """How each node stands now; writes `nodes.json` and `inspect/`."""

        def look(node: Node) -> tuple[str, dict[str, Any]]:
            try:
                data = self._client.api.inspect_container(node.container.id)
            except NotFound:
                raise LabError(f"the container of {node.name} was removed from outside") from None
            self._evidence.write(f"inspect/{node.name}.json", data)
            state = data["State"]
            return node.name, {
                "running": state["Running"],
                "exit": None if state["Running"] else state["ExitCode"],
                "oom_killed": state["OOMKilled"],
                "finished": None if state["Running"] else _unix(state["FinishedAt"]),
            }

        with ThreadPoolExecutor(8) as pool:
            states = dict(pool.map(look, self.nodes.values()))
        self._evidence.write("nodes.json", states)
        return states

    def exit_code(self, name: str) -> int:
        """Of a node that has ended."""
        data = self._client.api.inspect_container(self.nodes[name].container.id)
        return int(data["State"]["ExitCode"])

    def start_again(self, name: str) -> None:
        """Start a node that has ended, in the same container and with the same address."""
        node = self.nodes[name]
        self.drain(name)
        before, since = self._last_address.get(name), time.time()
        node.container.start()
        if (now := self._address(node)) != before:
            raise LabError(f"the address of {name} was {before} and is {now}")
        self._evidence.event("started-again", node=name)
        self._watch(name, node.container, since)

    def _start(self) -> None:
        plan = self.plan
        worker_names = [f"worker{i}" for i in range(1, len(plan.workers) + 1)]
        with ThreadPoolExecutor(len(plan.workers) + 4) as pool:
            networks = {
                name: pool.submit(self._network, name)
                for name in ("publish", "head", *worker_names)
            }
            proxy = pool.submit(self._proxy, networks)
            workers = [
                pool.submit(self._worker, index, networks[name].result)
                for index, name in enumerate(worker_names, 1)
            ]
            proxy_addresses = proxy.result()
            addresses = [self._address(worker.result()) for worker in workers]
            self._evidence.event("containers-up")
        self.links.wait_up(plan.ready_seconds)
        for index, address in enumerate(addresses, 1):
            self._link(index, address, proxy_addresses)
        self._before_head(self)
        # The head connects at once, so its links are there before it is.
        head = self._head(networks["head"].result())
        self._evidence.event("head-started")
        target = f"{self._address(head) or 'head'}:{HTTP_PORT}"
        self.links.create("head", f"{proxy_addresses['publish']}:{HTTP_PORT}", target)

    def _link(self, index: int, address: str, proxy: dict[str, str]) -> None:
        """A link that has proved itself: HELLO answered through it, then moved to the head.

        The links take turns at the port that the head's HTTP has later: each published port
        costs the engine a process and a handful of firewall rules.
        """
        name = f"worker{index}"
        self.links.create(name, f"{proxy['publish']}:{HTTP_PORT}", f"{address}:{WORKER_PORT}")
        version = wait_hello("127.0.0.1", self._ports[HTTP_PORT], self.plan.ready_seconds)
        self.links.move(name, f"{proxy['head']}:{LINK_PORT + index}")
        if self.plan.link.latency_ms and self.plan.link.only in (None, name):
            self.links.add_latency(name, self.plan.link.latency_ms)
        self._evidence.event("link-up", node=name, protocol=".".join(map(str, version)))

    def _network(self, name: str) -> Network:
        published = name == "publish"
        options = NO_WAY_OUT if published else NO_HOST
        kind = {"internal": not published, "labels": self.plan.labels, "options": options}
        deadline = time.monotonic() + NETWORK_SECONDS
        while True:
            try:
                return Network(docker_network_kw=kind).create()
            except APIError as error:
                # Of this lab's other cases, or of another program: some are given back soon.
                if NO_POOL not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def _container(
        self, name: str, image: str, command: list[str], network: Network, **kind: Any
    ) -> DockerContainer:
        return DockerContainer(
            image,
            name=f"{self._name}-{name}",
            command=command,  # type: ignore[arg-type]  # the SDK takes a list as it is
            network=network,
            network_aliases=kind.pop("aliases", []),
            labels=self.plan.labels,
            nano_cpus=(os.cpu_count() or 1) * 1_000_000_000,
            **RIGHTS,
            **kind,
        ).with_tmpfs_mount("/tmp", "size=64m")  # noqa: S108 - inside the container

    def _worker(self, index: int, network: Callable[[], Network]) -> Node:
        plan = self.plan
        command = plan.worker_command(index)
        return self._node(
            f"worker{index}", plan.workers[index - 1], command, network(), plan.worker_memory, []
        )

    def _head(self, network: Network) -> Node:
        plan = self.plan
        models = [(str(plan.model.parent), MODELS, "ro")]
        return self._node("head", plan.head, plan.head_command(), network, plan.head_memory, models)

    def _node(
        self,
        name: str,
        node: NodePlan,
        command: list[str],
        network: Network,
        memory: str,
        volumes: list[tuple[str, str, str]],
    ) -> Node:
        cache = [(str(node.cache[0]), node.cache[1], "rw")] if node.cache else []
        container = self._container(
            name,
            node.image,
            command,
            network,
            mem_limit=memory,
            memswap_limit=memory,
            env=dict(self.plan.env),
            volumes=[*volumes, *cache],
        )
        return self._watch(name, container.start().get_wrapped_container())

    def _proxy(self, networks: dict[str, Future[Network]]) -> dict[str, str]:
        """toxiproxy on all networks; its address on each.

        Its host name means its first network's address, the publish network's, which is all that
        its control API listens on.
        """
        plan = self.plan
        ports = (CONTROL_PORT, HTTP_PORT)
        proxy = self._container(
            "toxiproxy",
            plan.toxiproxy,
            ["-host", "toxiproxy", "-port", str(CONTROL_PORT), "-proxy-metrics"],
            networks["publish"].result(),
            hostname="toxiproxy",
            mem_limit="256m",
        )
        proxy.ports = {str(port): ("127.0.0.1", None) for port in ports}  # type: ignore[misc]
        proxy.start()
        node = self._watch("toxiproxy", proxy.get_wrapped_container())
        aliases = {"head": [f"worker{i}" for i in range(1, len(plan.workers) + 1)]}
        for name, network in networks.items():
            if name != "publish":
                network.result().connect(node.container.id, aliases.get(name, []))
        data = self._client.api.inspect_container(node.container.id)["NetworkSettings"]
        self._ports = {port: int(data["Ports"][f"{port}/tcp"][0]["HostPort"]) for port in ports}
        self.links = Links("127.0.0.1", self._ports[CONTROL_PORT])
        return {
            name: data["Networks"][network.result().name]["IPAddress"]
            for name, network in networks.items()
        }

    def _address(self, node: Node) -> str:
        data = self._client.api.inspect_container(node.container.id)
        networks = data["NetworkSettings"]["Networks"].values()
        self._last_address[node.name] = next((str(net["IPAddress"]) for net in networks), "")
        return self._last_address[node.name]

    def _watch(self, name: str, container: Any, since: float | None = None) -> Node:
        """Stream a started container's log to the evidence, and note when it exits."""
        node = self.nodes[name] = Node(name, container)

        def stream() -> None:
            with self._evidence.log_path(name).open("ab") as file, _gone():
                more = {"since": since} if since else {}
                for chunk in container.logs(stream=True, follow=True, timestamps=True, **more):
                    file.write(chunk)
                    file.flush()

        def wait() -> None:
            with _gone():
                code = container.wait()["StatusCode"]
                self._evidence.event("exit", node=name, code=code)
            node.exited.set()

        for work in (stream, wait):
            thread = threading.Thread(target=work, name=f"{work.__name__}-{name}", daemon=True)
            thread.start()
            node.threads.append(thread)
        return node

    def drain(self, name: str, seconds: float = 5.0) -> None:
        """Wait until an exited node's log is complete."""
        for thread in self.nodes[name].threads:
            thread.join(seconds)

    def _remove(self) -> None:
        sweep_case(self._client, self.plan.labels)
        for node in list(self.nodes.values()):
            self.drain(node.name)


@contextlib.contextmanager
def _gone() -> Iterator[None]:
    """The container was removed under a thread that watches it: the thread just ends."""
    with contextlib.suppress(
        NotFound, APIError, requests.RequestException, OSError, ValueError, AttributeError
    ):
        yield


def _unix(stamp: str) -> float:
    """Unix seconds of the engine's time, nanoseconds cut to microseconds."""
    try:
        return datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00").timestamp()
    except ValueError as error:
        raise LabError(f"the engine gave a time that is none: {stamp!r}") from error
