"""Faults of links: toxics of toxiproxy, and a link that is down.

A link is named by its worker. `upstream` is from the head to the worker.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from lab.faults.base import Fault

if TYPE_CHECKING:
    from lab.topology import Topology

Direction = Literal["upstream", "downstream", "both"]


class LinkFault(Fault):
    """A fault between the head and one worker, or each of them."""

    of_link: ClassVar[bool] = True


class Toxic(LinkFault):
    """A fault that one toxic in each of its directions makes."""

    direction: Direction = "both"

    toxic: ClassVar[str]
    """toxiproxy's type."""

    @abstractmethod
    def attributes(self) -> dict[str, int]:
        """The toxic's, in toxiproxy's own words and units."""

    def begin(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        found = [
            topology.links.add_toxic(target, self._label(way), self.toxic, way, self.attributes())
            for way in self._ways()
        ]
        return {"toxics": found}

    def end(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        return {
            "toxics_left": [
                name
                for way in self._ways()
                for name in topology.links.remove_toxic(target, self._label(way))
            ]
        }

    def _ways(self) -> list[str]:
        return ["upstream", "downstream"] if self.direction == "both" else [self.direction]

    def _label(self, way: str) -> str:
        return f"fault-{self.toxic}-{way}"


class Latency(Toxic):
    """Each chunk comes later by `latency_ms`, give or take `jitter_ms`."""

    kind: Literal["latency"]
    toxic: ClassVar[str] = "latency"
    latency_ms: Annotated[int, Field(ge=1, le=60000)]
    jitter_ms: Annotated[int, Field(ge=0, le=60000)] = 0

    def attributes(self) -> dict[str, int]:
        """See `Toxic`."""
        return {"latency": self.latency_ms, "jitter": self.jitter_ms}


class Bandwidth(Toxic):
    """No more than `kb_per_s` KB a second, each way."""

    kind: Literal["bandwidth"]
    toxic: ClassVar[str] = "bandwidth"
    kb_per_s: Annotated[int, Field(ge=1)]

    def attributes(self) -> dict[str, int]:
        """See `Toxic`."""
        return {"rate": self.kb_per_s}


class Blackhole(Toxic):
    """Nothing comes through, and no end is seen. Where it is lifted toxiproxy closes what was open:
    what was sent meanwhile is lost."""

    kind: Literal["blackhole"]
    toxic: ClassVar[str] = "timeout"

    def attributes(self) -> dict[str, int]:
        """See `Toxic`."""
        return {"timeout": 0}


class Reset(Toxic):
    """Connections end with RST, after `after_ms`."""

    kind: Literal["reset"]
    toxic: ClassVar[str] = "reset_peer"
    after_ms: Annotated[int, Field(ge=0, le=60000)] = 0

    def attributes(self) -> dict[str, int]:
        """See `Toxic`."""
        return {"timeout": self.after_ms}

    def prepare(self, topology: Topology, target: str) -> None:
        """toxiproxy ends a connection with RST only if the toxic was there at its begin; on one
        that is older it would be FIN. So it is there from the start, for no connection at all."""
        for way in self._ways():
            attributes = self.attributes()
            topology.links.add_toxic(
                target, self._label(way), self.toxic, way, attributes, toxicity=0.0
            )

    def begin(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        return {
            "toxicity": [
                topology.links.set_toxicity(target, self._label(way), 1.0) for way in self._ways()
            ]
        }

    def end(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        return {
            "toxicity": [
                topology.links.set_toxicity(target, self._label(way), 0.0) for way in self._ways()
            ]
        }


class SlowClose(Toxic):
    """The end of a connection comes later by `delay_ms`."""

    kind: Literal["slow-close"]
    toxic: ClassVar[str] = "slow_close"
    delay_ms: Annotated[int, Field(ge=1, le=60000)]

    def attributes(self) -> dict[str, int]:
        """See `Toxic`."""
        return {"delay": self.delay_ms}


class Slicer(Toxic):
    """Data comes in slices of about `size` bytes, `delay_us` apart."""

    kind: Literal["slicer"]
    toxic: ClassVar[str] = "slicer"
    size: Annotated[int, Field(ge=1)]
    variation: Annotated[int, Field(ge=0)] = 0
    delay_us: Annotated[int, Field(ge=0, le=10_000_000)] = 0

    def attributes(self) -> dict[str, int]:
        """See `Toxic`."""
        return {
            "average_size": self.size,
            "size_variation": self.variation,
            "delay": self.delay_us,
        }


class Limit(Toxic):
    """The connection is closed after `max_bytes` bytes that way, counted from the fault's begin."""

    kind: Literal["limit"]
    toxic: ClassVar[str] = "limit_data"
    max_bytes: Annotated[int, Field(ge=0)]

    def attributes(self) -> dict[str, int]:
        """See `Toxic`."""
        return {"bytes": self.max_bytes}


class Down(LinkFault):
    """The link's port is closed and its connections end with FIN; `until` it is up again."""

    kind: Literal["down"]

    def begin(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        return {"enabled": topology.links.enable(target, False)}

    def end(self, topology: Topology, target: str) -> dict[str, Any]:
        """See `Fault`."""
        return {"enabled": topology.links.enable(target, True)}
