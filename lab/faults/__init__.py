"""Faults: something done to a link or a node at a stated moment.

To add one, write a small class in `links.py`, `nodes.py` or `storage.py` (its docstring is what
people read), list it in `KINDS`, and show its effect from outside in
`tests/integration/test_faults.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import Field

from lab.faults import links, nodes, storage
from lab.faults.base import Fault, Ground
from lab.faults.moments import Moment

__all__ = ["KINDS", "AnyFault", "Fault", "Ground", "Moment", "unavailable"]

AnyFault = Annotated[
    links.Latency
    | links.Bandwidth
    | links.Blackhole
    | links.Reset
    | links.SlowClose
    | links.Slicer
    | links.Limit
    | links.Down
    | nodes.Kill
    | nodes.Stop
    | nodes.Pause
    | nodes.Restart
    | nodes.Memory
    | nodes.Cpu
    | storage.CacheReadOnly
    | storage.CacheFull
    | storage.CacheTruncated,
    Field(discriminator="kind"),
]
"""One row of a scenario's `faults`."""

KINDS: dict[str, type[Fault]] = {
    get_args(kind.model_fields["kind"].annotation)[0]: kind
    for kind in get_args(get_args(AnyFault)[0])
}
"""By name."""


def unavailable(faults: tuple[Any, ...], ground: Ground) -> str | None:
    """Why some fault of these cannot act here, or None."""
    for fault in faults:
        if reason := fault.unavailable(ground):
            return f"{fault.words()}: {reason}"
    return None
