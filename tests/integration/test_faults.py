"""Each kind of fault has an effect that is measured from outside, and that is absent without it.

Every test runs twice: with the fault, and as a control with nothing injected, which must show no
effect. So a fault that does nothing fails its test, and so does a measurement that cannot fail.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import docker
import pytest
from pydantic import TypeAdapter

from lab import images, models, owner, sweep
from lab.evidence import Evidence
from lab.faults import KINDS, AnyFault, Fault, acts
from lab.faults.driver import head_health
from lab.images import ImageSpec
from lab.scenario import Link
from lab.topology import NodePlan, Plan, Topology
from tests.integration.conftest import FIXED
from tests.integration.through_link import Head, echo_behind

ECHO, NODE, VICTIM, STARVED = 1, 2, 3, 4
"""Workers: an echo behind the link; one that bears much; one to be killed; one to be starved."""

both = pytest.mark.parametrize("injected", [False, True], ids=["control", "fault"])


@pytest.fixture(scope="module")
def topology(
    client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Topology]:
    folder = tmp_path_factory.mktemp("faults")
    labels = owner.labels(folder.name, "faults")
    image = images.ensure(ImageSpec(FIXED)).id
    plan = Plan(
        head=NodePlan(image, ("-ngl", "99", "-c", "512", "-t", "1", "-np", "1", "-fit", "off")),
        workers=(NodePlan(image, ("-t", "1", "-c")),) * 4,
        toxiproxy=images.ensure_toxiproxy().id,
        model=models.build(models.STANDARD["llama"]).path,
        env={"LLAMA_CACHE": "/tmp/c"},  # noqa: S108 - inside the node
        link=Link(),
        labels=labels,
    )
    with Topology(client, plan, Evidence.create(folder, "faults")) as topology:
        # A worker serves one head at a time, and may die of SIGPIPE if that leaves in mid-answer.
        deadline = time.monotonic() + 60
        while head_health(topology) != "ok":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        topology.kill("head", "SIGKILL")
        assert topology.nodes["head"].exited.wait(10)
        echo_behind(topology, ECHO)
        yield topology
    assert sweep.sweep_case(client, labels) == 0


@pytest.fixture(scope="module")
def head(client: docker.DockerClient, topology: Topology) -> Iterator[Head]:
    with Head(client, topology, topology.plan.head.image) as head:
        yield head


SHOWN: set[str] = set()
"""The kinds that a test of this module made."""


def fault(kind: str, worker: int, **parameters: Any) -> Fault:
    """A fault as a scenario file gives it."""
    SHOWN.add(kind)
    data = {"kind": kind, "on": f"worker{worker}", **parameters}
    made: Fault = TypeAdapter(AnyFault).validate_python(data)
    return made


class Injected:
    """A fault while the block runs, or the control: nothing."""

    def __init__(self, topology: Topology, fault: Fault, injected: bool) -> None:
        self._topology, self._fault, self.injected = topology, fault, injected

    def begin(self) -> dict[str, Any]:
        return self._fault.begin(self._topology, self._fault.on) if self.injected else {}

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *_: object) -> None:
        if self.injected:
            self._fault.end(self._topology, self._fault.on)


# --- links --------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("direction", "least"), [("upstream", 0.2), ("downstream", 0.2), ("both", 0.4)]
)
def test_latency(
    topology: Topology, head: Head, injected: bool, direction: str, least: float
) -> None:
    slow = fault("latency", ECHO, latency_ms=200, direction=direction)
    with Injected(topology, slow, injected):
        went = head.send(ECHO, b"x", times=3)
    assert (min(went.seconds) >= least * 0.95) is injected


@both
def test_jitter(topology: Topology, head: Head, injected: bool) -> None:
    unsteady = fault("latency", ECHO, latency_ms=300, jitter_ms=300, direction="upstream")
    with Injected(topology, unsteady, injected):
        went = head.send(ECHO, b"x", times=8)
    later = went.seconds[1:]  # the first waits for a connection too
    assert (max(later) - min(later) > 0.1) is injected


@both
@pytest.mark.parametrize("direction", ["upstream", "downstream"])
def test_bandwidth(topology: Topology, head: Head, injected: bool, direction: str) -> None:
    narrow = fault("bandwidth", ECHO, kb_per_s=50, direction=direction)
    with Injected(topology, narrow, injected):
        went = head.send(ECHO, b"x" * 50_000)
    assert went.bytes == 50_000
    assert (went.seconds[0] > 0.7) is injected


@both
@pytest.mark.parametrize("direction", ["upstream", "downstream", "both"])
def test_blackhole(topology: Topology, head: Head, injected: bool, direction: str) -> None:
    """Nothing comes, no end is seen; and it is the right direction that is cut."""
    topology.nodes["worker1"].container.exec_run(["sh", "-c", "rm -f /tmp/echoed"])
    cut = fault("blackhole", ECHO, direction=direction)
    with Injected(topology, cut, injected):
        went = head.send(ECHO, b"x" * 10)
        arrived = acts.shell(topology, "worker1", "cat /tmp/echoed 2>/dev/null; true")
    assert (went.end == "silent") is injected
    assert (arrived == "") is (injected and direction != "downstream")


@both
def test_reset(topology: Topology, head: Head, injected: bool) -> None:
    reset = fault("reset", ECHO)
    reset.prepare(topology, "worker1")
    torn = Injected(topology, reset, injected)
    went = head.send(ECHO, b"x", meanwhile=torn.begin)
    torn.__exit__()
    assert went.end == ("rst" if injected else "open")
    assert head.send(ECHO, b"x").end == "open"
    for way in ("upstream", "downstream"):
        topology.links.remove_toxic("worker1", f"fault-reset_peer-{way}")


@both
def test_down_and_up_again(topology: Topology, head: Head, injected: bool) -> None:
    """Open connections end with FIN, new ones are refused, and afterwards all is well."""
    down = Injected(topology, fault("down", ECHO), injected)
    went = head.send(ECHO, b"x", meanwhile=down.begin)
    late = head.send(ECHO, b"x")
    down.__exit__()
    assert (went.end, late.end) == (("fin", "refused") if injected else ("open", "open"))
    assert head.send(ECHO, b"x").end == "open"


@both
def test_slow_close(topology: Topology, head: Head, injected: bool) -> None:
    """The echo closes on a Q."""
    slow = fault("slow-close", ECHO, delay_ms=1000)
    with Injected(topology, slow, injected):
        went = head.send(ECHO, b"Q", wanted=1)
    assert went.end == "fin"
    assert (went.seconds[0] > 0.9) is injected


@both
def test_slicer(topology: Topology, head: Head, injected: bool) -> None:
    sliced = fault("slicer", ECHO, size=100, variation=20, delay_us=2000, direction="downstream")
    with Injected(topology, sliced, injected):
        went = head.send(ECHO, b"x" * 5000)
    assert went.bytes == 5000
    assert (went.reads > 20) is injected


@both
def test_limit(topology: Topology, head: Head, injected: bool) -> None:
    limit = fault("limit", ECHO, max_bytes=3000, direction="downstream")
    with Injected(topology, limit, injected):
        went = head.send(ECHO, b"x" * 1000, times=10)
    assert went.bytes == (3000 if injected else 10_000)
    assert (went.end != "open") is injected


# --- nodes --------------------------------------------------------------------------------------


@both
def test_stop_and_go(topology: Topology, head: Head, injected: bool) -> None:
    stopped = Injected(topology, fault("stop", NODE), injected)
    with stopped:
        assert (acts.process_state(topology, "worker2")[0] == "T") is injected
    assert acts.process_state(topology, "worker2")[0] != "T"
    _late_answer(head, stopped)


@both
def test_pause_and_resume(topology: Topology, head: Head, injected: bool) -> None:
    paused = Injected(topology, fault("pause", NODE), injected)
    with paused:
        assert (acts.state(topology, "worker2")["Status"] == "paused") is injected
    assert acts.state(topology, "worker2")["Status"] == "running"
    _late_answer(head, paused)


def _late_answer(head: Head, halt: Injected) -> None:
    """Halted for a second the worker answers that much later.

    The client waits: a worker that answers to nobody when it goes on dies of SIGPIPE.
    """
    halt.begin()
    timer = threading.Timer(1.0, halt.__exit__)
    timer.start()
    went = head.hello(NODE)
    timer.join()
    assert went.end == "open"
    assert (went.seconds[0] > 0.5) is halt.injected


@both
def test_restart(topology: Topology, head: Head, injected: bool) -> None:
    before = acts.state(topology, "worker2")["StartedAt"]
    with Injected(topology, fault("restart", NODE), injected):
        assert head.hello(NODE).end == ("refused" if injected else "open")
    assert (acts.state(topology, "worker2")["StartedAt"] != before) is injected
    assert head.hello(NODE).end == "open"


@both
def test_cpu(topology: Topology, injected: bool) -> None:
    with Injected(topology, fault("cpu", NODE, cpus=0.05), injected):
        before = acts.cpu_seconds(topology, "worker2")
        acts.shell(topology, "worker2", "timeout 2 perl -e '1 while 1'; true")
        used = acts.cpu_seconds(topology, "worker2") - before
    assert (used < 0.4) is injected


@both
def test_memory(topology: Topology, injected: bool) -> None:
    """A process that wants 60 MiB is killed at a limit of 40, and lives without one."""
    with Injected(topology, fault("memory", STARVED, limit_mib=40), injected):
        code = _exit_of(topology, "worker4", "perl -e '$x = q(x) x 60_000_000'")
    assert code == (137 if injected else 0)


@both
@pytest.mark.parametrize(("signal", "code"), [("SIGTERM", 143), ("SIGKILL", 137)])
def test_kill(topology: Topology, head: Head, injected: bool, signal: str, code: int) -> None:
    Injected(topology, fault("kill", VICTIM, signal=signal), injected).begin()
    state = acts.state(topology, "worker3")
    assert (state["Status"], state["ExitCode"]) == (
        ("exited", code) if injected else ("running", 0)
    )
    assert head.hello(VICTIM).end == ("refused" if injected else "open")
    if injected:
        fault("restart", VICTIM).end(topology, "worker3")


# --- storage ------------------------------------------------------------------------------------

WRITE = 'mkdir -p "$LLAMA_CACHE/rpc"; head -c 100000 /dev/zero >"$LLAMA_CACHE/rpc/f"'


@both
def test_cache_read_only(topology: Topology, injected: bool) -> None:
    with Injected(topology, fault("cache-read-only", NODE), injected):
        assert (_exit_of(topology, "worker2", WRITE) != 0) is injected
    assert _exit_of(topology, "worker2", f"{WRITE}; rm $LLAMA_CACHE/rpc/f") == 0


@both
def test_cache_full(topology: Topology, injected: bool) -> None:
    with Injected(topology, fault("cache-full", NODE), injected):
        assert (_exit_of(topology, "worker2", WRITE) != 0) is injected
    assert _exit_of(topology, "worker2", f"{WRITE}; rm $LLAMA_CACHE/rpc/f") == 0


@both
def test_cache_truncated(topology: Topology, injected: bool) -> None:
    acts.shell(topology, "worker2", WRITE)
    Injected(topology, fault("cache-truncated", NODE), injected).begin()
    size = acts.shell(topology, "worker2", 'stat -c %s "$LLAMA_CACHE/rpc/f"')
    assert int(size) == (50_000 if injected else 100_000)


def test_every_kind_was_shown(request: pytest.FixtureRequest) -> None:
    """Last of all: a new kind needs a test here."""
    if any(word in request.config.invocation_params.args for word in ("-k", "--lf")):
        pytest.skip("not all tests of this module ran")
    assert set(KINDS) - SHOWN == set()


def _exit_of(topology: Topology, node: str, script: str) -> int:
    run: Callable[..., Any] = topology.nodes[node].container.exec_run
    return int(run(["bash", "-o", "pipefail", "-c", script]).exit_code)
