"""The proxy is the only path, and nodes have no rights that they do not need."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import psutil
import pytest

from lab import images, models, owner, sweep
from lab.evidence import Evidence
from lab.images import ImageSpec
from lab.links import CONTROL_PORT
from lab.scenario import Link
from lab.topology import HTTP_PORT, LINK_PORT, WORKER_PORT, NodePlan, Plan, Topology
from tests.integration.conftest import FIXED


@pytest.fixture(scope="module")
def topology(
    client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Topology]:
    folder = tmp_path_factory.mktemp("isolation")
    labels = owner.labels(folder.name, "isolation")
    image = images.ensure(ImageSpec(FIXED)).id
    plan = Plan(
        head=NodePlan(image, ("-ngl", "99", "-c", "512", "-t", "1", "-np", "1", "-fit", "off")),
        workers=(NodePlan(image, ("-t", "1")),) * 2,
        toxiproxy=images.ensure_toxiproxy().id,
        model=models.build(models.STANDARD["llama"]).path,
        link=Link(),
        labels=labels,
    )
    with Topology(client, plan, Evidence.create(folder, "isolation")) as topology:
        yield topology
    assert sweep.sweep_case(client, labels) == 0


def addresses(topology: Topology, client: docker.DockerClient, name: str) -> dict[str, Any]:
    data = client.api.inspect_container(topology.nodes[name].container.id)
    return {key: net["IPAddress"] or "" for key, net in data["NetworkSettings"]["Networks"].items()}


def reached(topology: Topology, node: str, targets: list[tuple[str, int]]) -> set[tuple[str, int]]:
    """The targets to which a TCP connection from inside a node comes about within 2 seconds."""
    probe = "timeout 2 bash -c 'exec 3<>/dev/tcp/{0}/{1}' 2>/dev/null && echo {0} {1} &"
    script = "\n".join([probe.format(*target) for target in targets] + ["wait"])
    output = topology.nodes[node].container.exec_run(["bash", "-c", script]).output.decode()
    return {(host, int(port)) for host, port in (line.split() for line in output.splitlines())}


def test_the_probe_itself_can_reach(topology: Topology) -> None:
    own = [("127.0.0.1", WORKER_PORT)]
    assert reached(topology, "worker1", own) == set(own)
    links = [("worker1", LINK_PORT + 1), ("worker2", LINK_PORT + 2)]
    assert reached(topology, "head", links) == set(links)


@pytest.mark.parametrize("node", ["worker1", "worker2"])
def test_a_worker_reaches_nothing(
    topology: Topology, client: docker.DockerClient, node: str
) -> None:
    others = {name: addresses(topology, client, name) for name in topology.nodes if name != node}
    hosts = [address for nets in others.values() for address in nets.values()]
    assert len(hosts) == 2 + 4  # the other worker, the head, toxiproxy on its four networks
    ports = [WORKER_PORT, HTTP_PORT, CONTROL_PORT, LINK_PORT + 1, LINK_PORT + 2]
    assert reached(topology, node, [(host, port) for host in hosts for port in ports]) == set()


def test_no_node_reaches_toxiproxys_control_api(
    topology: Topology, client: docker.DockerClient
) -> None:
    targets = [(a, CONTROL_PORT) for a in addresses(topology, client, "toxiproxy").values()]
    assert len(targets) == 4
    assert reached(topology, "head", targets) == set()


@pytest.mark.parametrize("node", ["head", "worker1"])
def test_no_node_reaches_the_host_or_its_way_out(topology: Topology, node: str) -> None:
    """A service of this host is out of reach, whatever it listens on, and so is all behind it."""
    with socket.create_server(("0.0.0.0", 0)) as server:  # noqa: S104 - so that it could be reached
        port = server.getsockname()[1]
        hosts = [
            address.address
            for addresses_ in psutil.net_if_addrs().values()
            for address in addresses_
            if address.family == socket.AF_INET and not address.address.startswith("127.")
        ]
        assert hosts, "this host has no address at all: this test would show nothing"
        for host in hosts:
            socket.create_connection((host, port), timeout=2).close()
        assert reached(topology, node, [(host, port) for host in hosts]) == set()


def test_the_host_has_no_address_on_a_nodes_network(
    topology: Topology, client: docker.DockerClient
) -> None:
    """A service of the engine's host is out of reach, whatever it listens on."""
    for node in ("head", "worker1"):
        for name in addresses(topology, client, node):
            bridge = "br-" + client.api.inspect_network(name)["Id"][:12]
            if not Path("/sys/class/net", bridge).exists():
                pytest.skip("the engine runs on another host")
            addresses_here = os.popen(f"ip -4 -o addr show {bridge}").read()  # noqa: S605
            assert addresses_here == ""


@pytest.mark.parametrize("node", ["head", "worker1", "toxiproxy"])
def test_dropped_rights(topology: Topology, client: docker.DockerClient, node: str) -> None:
    data = client.api.inspect_container(topology.nodes[node].container.id)
    host = data["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert not host["Privileged"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["ReadonlyRootfs"]
    assert host["PidsLimit"] > 0
    assert host["Memory"] > 0
    assert host["NanoCpus"] > 0
    assert data["Config"]["User"] not in ("", "0", "root")


@pytest.mark.parametrize("node", ["head", "worker1"])
def test_inside_the_rights_are_gone(topology: Topology, node: str) -> None:
    run = topology.nodes[node].container.exec_run
    status = run(["cat", "/proc/1/status"]).output.decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert run(["touch", "/opt/llama.cpp/x"]).exit_code != 0
    assert run(["touch", "/tmp/x"]).exit_code == 0  # noqa: S108


def test_ports_are_published_on_loopback_only(
    topology: Topology, client: docker.DockerClient
) -> None:
    for name, node in topology.nodes.items():
        ports = client.api.inspect_container(node.container.id)["NetworkSettings"]["Ports"] or {}
        published = [binding for bindings in ports.values() for binding in bindings or []]
        assert bool(published) == (name == "toxiproxy")
        assert {binding["HostIp"] for binding in published} <= {"127.0.0.1"}


def test_stacks_of_a_living_node_can_be_had(topology: Topology) -> None:
    stacks = topology.stacks("worker1")
    assert "TID" in stacks
    assert "accept" in stacks or "recv" in stacks
