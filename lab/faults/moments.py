"""Moments: when a fault begins, and when it ends."""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator, model_validator

from lab import toml
from lab.faults import acts
from lab.phase import PHASES, starts

if TYPE_CHECKING:
    from lab.evidence import Evidence
    from lab.topology import Topology
    from lab.workload import Requests

Seconds = Annotated[float, Field(ge=0, le=600)]
Count = Annotated[int, Field(ge=1)]

ONE_OF = (
    "before", "phase", "line", "tokens", "prompt_tokens", "bytes", "seconds", "between",
)  # fmt: skip


class Moment(toml.Strict, strict=True):
    """One moment of a case; exactly one of `ONE_OF`.

    As `at` everything counts from the head's start, as `until` from the fault's begin.
    """

    before: Literal["start", "probe", "shutdown"] | None = None
    """Before the head is started; after the work, while nothing is asked of the head, before one
    more request; after that, before the head is asked to stop."""
    phase: str | None = None
    """When the head is first seen in this phase, or beyond it."""
    line: str | None = None
    """When a node logs a line with this regular expression in it."""
    node: Annotated[str, Field(pattern=r"^(head|worker\d+)$")] = "head"
    """Whose line."""
    tokens: Count | None = None
    """After that many generated tokens, of all requests together."""
    prompt_tokens: Count | None = None
    """After that many prompt tokens, as the server reports them: once a batch (`-b`)."""
    bytes: Count | None = None
    """After that many bytes on the fault's link, both directions."""
    seconds: Seconds | None = None
    between: Annotated[list[Seconds], Field(min_length=2, max_length=2)] | None = None
    """After a random time between these two, in seconds, drawn anew in each run."""

    @model_validator(mode="after")
    def _one(self) -> Moment:
        given = [key for key in ONE_OF if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                f"a moment is exactly one of {', '.join(ONE_OF)}; here: "
                f"{', '.join(given) or 'none'}"
            )
        if self.node != "head" and self.line is None:
            raise ValueError("`node` belongs to `line`")
        if self.between and self.between[0] > self.between[1]:
            raise ValueError("`between` is [earliest, latest]")
        return self

    @field_validator("phase")
    @classmethod
    def _phase(cls, name: str | None) -> str | None:
        if name is not None and name not in PHASES:
            raise ValueError(toml.unknown("phase", name, list(PHASES)))
        return name

    @field_validator("line")
    @classmethod
    def _compiles(cls, line: str | None) -> str | None:
        try:
            re.compile(line or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return line


START = Moment(before="start")


@dataclass(frozen=True)
class Mark:
    """Where the counts of a moment begin."""

    at: float
    """Unix seconds."""
    after: float = 0.0
    """Seconds that `between` drew."""
    tokens: int = 0
    prompt_tokens: int = 0
    bytes: int = 0


class Watch:
    """What moments are read from while a case runs."""

    def __init__(self, evidence: Evidence, topology: Topology) -> None:
        self._evidence, self._topology = evidence, topology
        self.requests: Requests | None = None
        """The requests under way, once there are some."""

    def mark(self, moment: Moment, worker: str) -> Mark:
        """Now: counts of `moment` begin here. `worker` names the link that bytes are counted on."""
        low, high = moment.between or (0.0, 0.0)
        return Mark(
            at=time.time(),
            after=random.uniform(low, high),  # noqa: S311 - no secret
            tokens=self.tokens(),
            prompt_tokens=self.prompt_tokens(),
            bytes=acts.traffic(self._topology, worker) if moment.bytes else 0,
        )

    def reached(self, moment: Moment, mark: Mark, worker: str) -> bool:
        """Whether the moment has come; `before` comes when the driver says so, never here."""
        match moment:
            case Moment(phase=str(phase)):
                seen = starts(self._evidence)
                return any(PHASES.index(name) >= PHASES.index(phase) for name in seen)
            case Moment(line=str(line)):
                lines = self._evidence.log(moment.node)
                return any(at >= mark.at and re.search(line, text) for at, text in lines)
            case Moment(tokens=int(count)):
                return self.tokens() - mark.tokens >= count
            case Moment(prompt_tokens=int(count)):
                return self.prompt_tokens() - mark.prompt_tokens >= count
            case Moment(bytes=int(count)):
                return acts.traffic(self._topology, worker) - mark.bytes >= count
            case Moment(seconds=float(seconds)):
                return time.time() - mark.at >= seconds
            case Moment(between=[_, _]):
                return time.time() - mark.at >= mark.after
        return False

    def tokens(self) -> int:
        """Generated so far."""
        return self.requests.tokens() if self.requests else 0

    def prompt_tokens(self) -> int:
        """Processed so far."""
        return self.requests.prompt_tokens() if self.requests else 0
