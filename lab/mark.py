"""What an outcome is recognised by: not the exit code, not the moment. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lab.outcome import Outcome


@dataclass(frozen=True)
class Mark:
    """An outcome's signature; without one, the line that mattered, its numbers taken out."""

    outcome: str
    signature: str | None = None

    @classmethod
    def of(cls, outcome: Outcome) -> Mark:
        """The mark of one run."""
        if outcome.outcome == "ok":
            return cls("ok")
        sign = outcome.signature or re.sub(r"[0-9a-f]*\d[0-9a-fx.]*", "#", outcome.line or "")
        return cls(outcome.outcome, sign or None)

    def __str__(self) -> str:
        return f"{self.outcome} ({self.signature})" if self.signature else self.outcome
