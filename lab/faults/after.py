"""What must hold after a fault."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from lab import toml

Then = Literal["answers", "answers-wrong", "refuses", "aborts", "hangs"]
"""`answers`: right, as without RPC. `refuses`: an error, or an exit by itself. `aborts`: an end by
a signal. `hangs`: no answer within the phase's budget."""

Health = Literal["ok", "busy", "silent", "gone", "absent"]
"""Of the head: `/health` says so, says something else, does not answer; it ended; not started."""


class After(toml.Strict, strict=True):
    """What must hold after the fault. Every key that is given must match."""

    then: Then | None = None
    """What the head did next; where it lived on, with one more request."""
    within: Annotated[float, Field(gt=0)] | None = None
    """Seconds from the fault's last begin or end; of a hang: it lasted that long at least."""
    client: Literal["answer", "error", "stream-ends", "waits"] | None = None
    """What the requests under way saw: an answer, an error, an end without either, nothing."""
    health_before: Health | None = None
    health_after: Health | None = None
    """After the work, before the head is asked to stop."""
    memory_mib: Annotated[float, Field(ge=0)] | None = None
    """How much more memory a worker may hold once the head is gone than before it came."""
    again: Then | None = None
    """What a head does that is started once more, with the same workers."""
    shutdown: Literal["clean", "aborts", "hangs"] | None = None
    """How the head ended when asked to."""

    @model_validator(mode="after")
    def _within(self) -> After:
        if self.within is not None and self.then is None:
            raise ValueError("`within` belongs to `then`")
        return self
