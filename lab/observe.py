"""Case -> observations: topology up, workload, down; everything into the evidence directory."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import docker
import httpx
import requests

from lab.aftermath import PROBE_TOKENS
from lab.case import Case
from lab.evidence import Evidence
from lab.faults.driver import Driver
from lab.phase import phase_of, starts
from lab.scenario import Budget
from lab.topology import Plan, Topology
from lab.workload import Requests

POLL_SECONDS = 0.01
COUNTED_SECONDS = 1.5
"""toxiproxy counts a connection's bytes a moment after its end."""
HELLO_BYTES = 100
"""More than the lab's HELLO sends."""
SETTLE_SECONDS = 1.0
"""After the head died, how long its worker may take to die of the same cause."""


def observe(
    case: Case, plan: Plan, client: docker.DockerClient, evidence: Evidence, *, keep: bool
) -> None:
    """Run the case once. Crashes and hangs are observations, not exceptions.

    Raises:
        LabError, docker errors: the lab itself failed.
    """
    evidence.write("commands.json", plan.commands())
    evidence.event("begin")
    driver = Driver((*case.faults, *case.under), evidence)
    topology = Topology(client, plan, evidence, keep=keep, before_head=driver.before_head)
    with topology, driver:
        if _wait_healthy(topology, case.budget, evidence, driver):
            _work(topology, case, evidence, driver)
        driver.before_probe(topology.nodes["head"].exited.is_set() and not case.again)
        if case.faults:
            _probe(topology, case, evidence, driver)
        driver.before_shutdown()
        if not keep:
            _end(topology, case.budget, evidence)
            _traffic(topology, evidence)
            driver.note_memory("after")
        topology.snapshot()
        driver.close()
        if case.again and not keep:
            _again(topology, case, evidence)
    evidence.event("removed")


def _wait_healthy(topology: Topology, budget: Budget, evidence: Evidence, driver: Driver) -> bool:
    """Whether the head says `/health`; False where it exits or goes over a budget first."""
    head = topology.nodes["head"]
    with httpx.Client(timeout=2.0) as client:
        while not head.exited.is_set():
            try:
                if client.get(f"{topology.url}/health").status_code == httpx.codes.OK:
                    evidence.event("healthy")
                    return True
            except httpx.HTTPError:
                pass
            if _over_budget(topology, budget, evidence):
                return False
            driver.check()
            head.exited.wait(POLL_SECONDS)
    return False


def _work(topology: Topology, case: Case, evidence: Evidence, driver: Driver) -> None:
    requests = Requests(
        topology.url, case.workload, evidence.event, progress=driver.wants_progress()
    )
    driver.watch(requests)
    head = topology.nodes["head"]
    try:
        while not requests.wait(0.2):
            driver.check()
            if _over_budget(topology, case.budget, evidence):
                break
        if any(answer["error"] for answer in requests.answers()):
            # The connection can break an instant before the engine reports the exit.
            head.exited.wait(SETTLE_SECONDS)
        evidence.write("answers.json", requests.answers())
    finally:
        requests.abandon()


def _probe(topology: Topology, case: Case, evidence: Evidence, driver: Driver) -> None:
    """After a fault, one more request to a head that lives: `probe.json`."""
    hangs = any(event["event"] == "over-budget" for event in evidence.events())
    if hangs or topology.nodes["head"].exited.is_set():
        return
    evidence.write("probe.json", _ask(topology, case, evidence, "probe"))
    driver.check()


def _again(topology: Topology, case: Case, evidence: Evidence) -> None:
    """Start the head once more, with the same workers, and ask it: `again.json`."""
    found: dict[str, Any] = {"answer": None, "healthy": False, "exit": None, "seconds": 0.0}
    began = time.monotonic()
    evidence.event("again")
    topology.start_again("head")
    head = topology.nodes["head"]
    deadline = began + case.budget.again
    with httpx.Client(timeout=2.0) as client:
        while not head.exited.is_set() and not found["healthy"] and time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                answer = client.get(f"{topology.url}/health")
                found["healthy"] = answer.status_code == httpx.codes.OK
            head.exited.wait(POLL_SECONDS)
    if found["healthy"]:
        found |= _ask(topology, case, evidence, "again")
    if head.exited.wait(SETTLE_SECONDS if found["answer"] is None else 0):
        found["exit"] = topology.exit_code("head")
    found["seconds"] = round(time.monotonic() - began, 3)
    evidence.write("again.json", found)


def _ask(topology: Topology, case: Case, evidence: Evidence, what: str) -> dict[str, Any]:
    """The workload's first request, once more, but short: `{"answer": ... | None}`, None where none
    came within the budgets; the timeline gets `probe-request` and so on."""
    predict = min(case.workload.predict, PROBE_TOKENS)
    short = {"requests": 1, "together": False, "predict": predict}
    workload = case.workload.model_copy(update=short)
    head = topology.nodes["head"]

    def event(name: str, **facts: Any) -> None:
        evidence.event(f"{what}-{name}", **facts)

    requests = Requests(topology.url, workload, event)
    deadline = time.monotonic() + case.budget.prefill + case.budget.decode
    try:
        while not requests.wait(0.05) and time.monotonic() < deadline:
            pass
        answers = requests.answers()
        if not answers:
            event("over-budget", seconds=case.budget.prefill + case.budget.decode)
        elif answers[0]["error"]:
            head.exited.wait(SETTLE_SECONDS)
        return {"answer": answers[0] if answers else None}
    finally:
        requests.abandon()


def _end(topology: Topology, budget: Budget, evidence: Evidence) -> None:
    """Ask a living head to stop, as an operator would, and note how it does."""
    head = topology.nodes["head"]
    if head.exited.is_set():
        topology.drain("head")
        _settle(topology)
        return
    # A head that hangs is not asked: it would hang on, and its outcome is known.
    hangs = any(event["event"].endswith("over-budget") for event in evidence.events())
    evidence.event("shutdown")
    topology.kill("head", "SIGKILL" if hangs else "SIGTERM")
    if not head.exited.wait(budget.shutdown):
        evidence.event("shutdown-over-budget", seconds=budget.shutdown)
        topology.kill("head", "SIGKILL")
        head.exited.wait(budget.shutdown)
    topology.drain("head")


def _traffic(topology: Topology, evidence: Evidence) -> None:
    """Bytes over each link, once the head's connections have ended: `links.json`."""
    if topology.nodes["toxiproxy"].exited.is_set():
        return
    deadline = time.monotonic() + COUNTED_SECONDS
    with contextlib.suppress(requests.RequestException):
        now = topology.links.traffic()
        before: dict[str, dict[str, int]] = {}
        while (before != now or not _all_counted(now)) and time.monotonic() < deadline:
            time.sleep(0.05)
            before, now = now, topology.links.traffic()
        evidence.write("links.json", now)


def _all_counted(traffic: dict[str, dict[str, int]]) -> bool:
    """Whether each worker's link carried more than the lab's own HELLO."""
    return all(its["up"] > HELLO_BYTES for name, its in traffic.items() if name != "head")


def _settle(topology: Topology) -> None:
    """A worker that rejected a graph logs and closes; one that aborts takes a moment to die."""
    deadline = time.monotonic() + SETTLE_SECONDS
    head_end = time.monotonic()
    workers = [n for name, n in topology.nodes.items() if name.startswith("worker")]
    while time.monotonic() < deadline:
        if any(worker.exited.is_set() for worker in workers):
            return
        if time.monotonic() - head_end > 0.1:
            return
        time.sleep(POLL_SECONDS)


def _over_budget(topology: Topology, budget: Budget, evidence: Evidence) -> bool:
    """Whether the current phase took too long; if so, note where each node stands."""
    phase = phase_of(evidence)
    began = starts(evidence).get(phase)
    limit = float(getattr(budget, phase))
    if began is None or time.time() - began <= limit:
        return False
    evidence.event("over-budget", phase=phase, seconds=limit)
    for name in topology.nodes:
        if name != "toxiproxy":
            evidence.write_text(f"stacks/{name}.txt", topology.stacks(name))
    return True
