"""Which build to try next, and what is known so far. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

COMPILE = 200.0
"""Seconds of a build that must be compiled."""
WARM = 15.0
"""Seconds of one whose image is there."""


@dataclass(frozen=True)
class Search:
    """A row of builds, oldest first; at its two ends the outcome differs."""

    names: Sequence[str]
    sides: Mapping[str, str | None]
    """Name -> `good`, `bad`; None: it was tried and says nothing (did not compile, something else
    happened). The first and the last name have a side each."""

    @property
    def old(self) -> str:
        """The newest build that is as the oldest."""
        side = self.sides[self.names[0]]
        return [name for name in self.names if self.sides.get(name) == side][-1]

    @property
    def new(self) -> str:
        """The oldest that is as the newest."""
        side = self.sides[self.names[-1]]
        return next(name for name in self.names if self.sides.get(name) == side)

    @property
    def between(self) -> list[str]:
        """Everything between these two."""
        return list(self.names[self.names.index(self.old) + 1 : self.names.index(self.new)])

    @property
    def open(self) -> list[str]:
        """What of it was not tried."""
        return [name for name in self.between if name not in self.sides]

    def next(self, seconds: Callable[[str], float | None]) -> str | None:
        """The build to try now; None: there is none.

        Least in what it takes itself and in what will probably be left to compile after it. With
        no image at hand that is the middle; an image that is there is taken instead, unless it
        lies so far out that it would tell next to nothing.

        Args:
            seconds: what a build takes; None: it cannot be tried.
        """
        found = [(name, cost) for name in self.open if (cost := seconds(name)) is not None]
        gaps = len(found) + 1
        best: tuple[float, float, str] | None = None
        for place, (name, cost) in enumerate(found, 1):
            left = sum(part / gaps * math.log2(part) for part in (place, gaps - place))
            entry = (cost + COMPILE * left, abs(place - gaps / 2), name)
            best = min(best, entry) if best else entry
        return best[2] if best else None

    def steps_left(self) -> int:
        """How many more at the most, if each tells."""
        return math.ceil(math.log2(len(self.open) + 1))
