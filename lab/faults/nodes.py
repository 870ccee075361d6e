"""Faults of nodes: what happens to a process, and what a node is allowed to use.

Signals go to llama.cpp's own process inside the container: a stop of the container's process 1, an
init, would stop nothing else.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from lab.errors import LabError
from lab.faults import acts
from lab.faults.acts import NANO_CPUS
from lab.faults.base import Fault
from lab.faults.moments import Moment

if TYPE_CHECKING:
    from lab.topology import Topology

ENDS_SECONDS = 5.0
"""How long a node may take to end of SIGKILL."""


class NodeFault(Fault):
    """A fault that may strike the head too."""

    on: Annotated[str, Field(pattern=r"^(head|worker\d+|workers)$")]

    @model_validator(mode="after")
    def _head_is_there(self) -> NodeFault:
        if self.on == "head" and self.at.before == "start":
            raise ValueError("`at`: before its start there is no head")
        return self


class Kill(NodeFault):
    """Ends a process by a signal; a dead worker's port refuses connections."""

    kind: Literal["kill"]
    signal: Literal["SIGKILL", "SIGTERM", "SIGINT", "SIGSEGV", "SIGABRT"] = "SIGKILL"
    lasts: ClassVar[bool] = False
    kills: ClassVar[bool] = True

    def begin(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        acts.signal(topology, target, self.signal)
        ended = topology.nodes[target].exited.wait(ENDS_SECONDS)
        if not ended and self.signal == "SIGKILL":
            raise LabError(f"{target} lives on after {self.signal}")
        if ended and target != "head":
            _refuse(topology, target)
        return {"signal": self.signal, "ended": ended}


class Stop(NodeFault):
    """Stops a process (SIGSTOP): its connections stay, and nothing answers."""

    kind: Literal["stop"]

    def begin(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        acts.signal(topology, target, "SIGSTOP")
        return _expect_state(topology, target, stopped=True)

    def end(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        acts.signal(topology, target, "SIGCONT")
        return _expect_state(topology, target, stopped=False)


class Pause(NodeFault):
    """Freezes a whole node, as a machine that is suspended."""

    kind: Literal["pause"]

    def begin(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        topology.nodes[target].container.pause()
        return _expect_paused(topology, target, paused=True)

    def end(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        topology.nodes[target].container.unpause()
        return _expect_paused(topology, target, paused=False)


class Restart(Fault):
    """Kills a worker, and starts it again at the fault's end."""

    kind: Literal["restart"]
    until: Moment | None = Moment(seconds=0.5)
    kills: ClassVar[bool] = True

    def begin(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        acts.signal(topology, target, "SIGKILL")
        if not topology.nodes[target].exited.wait(ENDS_SECONDS):
            raise LabError(f"{target} lives on after SIGKILL")
        _refuse(topology, target)
        return {"running": False}

    def end(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        topology.start_again(target)
        acts.wait_listening(topology, target)
        topology.links.enable(target, True)
        return {"running": acts.state(topology, target)["Running"]}


class Memory(NodeFault):
    """Limits a node's memory; one that needs more is killed by the kernel."""

    kind: Literal["memory"]
    limit_mib: Annotated[int, Field(ge=6)]
    starves: ClassVar[bool] = True
    engine_needs: ClassVar[tuple[str, ...]] = ("MemoryLimit", "SwapLimit")

    def begin(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        return {"was": acts.limit(topology, target, memory=self.limit_mib << 20)}

    def end(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        return {"was": acts.limit(topology, target, memory=acts.memory_limit(topology, target))}


class Cpu(NodeFault):
    """Limits a node's processor time to `cpus` processors."""

    kind: Literal["cpu"]
    cpus: Annotated[float, Field(ge=0.01, le=64)]
    engine_needs: ClassVar[tuple[str, ...]] = ("CpuCfsQuota",)

    def begin(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        return {"was": acts.limit(topology, target, nano_cpus=int(self.cpus * 1e9))}

    def end(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        return {"was": acts.limit(topology, target, nano_cpus=NANO_CPUS)}


def _refuse(topology: Topology, worker: str) -> None:
    """Close a dead worker's link: nobody listens there, but toxiproxy would go on accepting."""
    topology.links.enable(worker, False)


def _expect_state(topology: Topology, target: str, *, stopped: bool) -> dict[str, Any]:
    deadline = time.monotonic() + acts.STATE_SECONDS
    while (state := acts.process_state(topology, target)).startswith("T") != stopped:
        if time.monotonic() > deadline:
            raise LabError(f"{target} is in state {state!r} after the signal")
        time.sleep(0.02)
    return {"state": state}


def _expect_paused(topology: Topology, target: str, *, paused: bool) -> dict[str, Any]:
    found = bool(acts.state(topology, target)["Paused"])
    if found != paused:
        raise LabError(f"{target}: paused is {found}, not {paused}")
    return {"paused": found}
