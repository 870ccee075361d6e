"""What every fault shares: where it acts, when, how often, and whether it can here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, model_validator

from lab import toml
from lab.faults.moments import START, Moment

if TYPE_CHECKING:
    from lab.topology import Topology

ALL = "workers"
"""As `on`: each of them."""


@dataclass(frozen=True)
class Ground:
    """The topology that a fault is to act on."""

    workers: int
    worker_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    engine: Mapping[str, Any] | None = None
    """What the engine says of itself (`docker info`); None: it is not asked yet."""


class Fault(toml.Strict, ABC, strict=True):
    """Something done to a link or a node. A subclass adds `kind` and its own parameters."""

    kind: str
    """Which fault; a subclass says its one name."""
    on: Annotated[str, Field(pattern=r"^(worker\d+|workers)$")]
    """A node; of a fault of links, the link between the head and that worker."""
    at: Moment = START
    until: Moment | None = None
    """None: to the end of the case."""
    times: Annotated[int, Field(ge=1, le=100)] = 1
    """How often it begins and ends."""
    pause: Annotated[float, Field(ge=0, le=60)] = 0.5
    """Seconds from one end to the next begin."""

    of_link: ClassVar[bool] = False
    """Whether it acts on the link, whatever the node does."""
    lasts: ClassVar[bool] = True
    """Whether it can end; a killed process stays dead."""
    kills: ClassVar[bool] = False
    """Whether it ends the node's process itself: that end is no crash."""
    starves: ClassVar[bool] = False
    """Whether it may have the node killed for its memory: that end is its crash."""
    engine_needs: ClassVar[tuple[str, ...]] = ()
    """What the engine must be able to do, as `docker info` names it."""

    @model_validator(mode="after")
    def _ends(self) -> Fault:
        if self.until and not self.lasts:
            raise ValueError("`until`: this fault does not end")
        if self.times > 1 and not self.until:
            raise ValueError("`times`: only a fault that ends (`until`) can begin again")
        if self.until and self.until.before:
            raise ValueError("`until`: a fault cannot end before what it waits for")
        return self

    def unavailable(self, ground: Ground) -> str | None:
        """Why it cannot act on this topology, or None where it can."""
        number = self.on.removeprefix("worker")
        if number.isdigit() and not 1 <= int(number) <= ground.workers:
            return f"there is no {self.on} in a case with {ground.workers} worker(s)"
        if self.on == ALL and not ground.workers:
            return "the case has no workers"
        absent = [key for key in self.engine_needs if ground.engine and not ground.engine.get(key)]
        if absent:
            return f"the engine has no {', '.join(absent)}"
        return None

    def targets(self, workers: int) -> list[str]:
        """The nodes that `on` means."""
        if self.on == ALL:
            return [f"worker{i}" for i in range(1, workers + 1)]
        return [self.on]

    def words(self) -> str:
        """A few words for people."""
        return f"{self.kind} on {self.on}"

    def prepare(self, topology: Topology, target: str) -> None:
        """What must be there before the head connects; without effect until `begin`."""
        del topology, target

    @abstractmethod
    def begin(self, topology: Topology, target: str) -> dict[str, Any]:
        """Inject it, and prove that it is there.

        Returns:
            What was read back, for the timeline.

        Raises:
            LabError, an error of the engine's or of toxiproxy's: it could not be injected.
        """

    def end(self, topology: Topology, target: str) -> dict[str, Any]:
        """Lift it, and prove that it is gone. Returns and raises as `begin`."""
        raise NotImplementedError
