"""Signatures: named log patterns that identify a failure (`lab/signatures.toml`)."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import RootModel, field_validator

from lab import toml

FILE = Path(__file__).with_name("signatures.toml")


class Signature(toml.Strict):
    """One entry of the file."""

    pattern: str | None = None
    """None: no line says it, the engine does."""
    node: Literal["head", "worker"] | None = None
    about: str

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern

    def found_in(self, node: str, line: str) -> bool:
        """Whether a log line of a node (`head`, `worker1`, ...) is this signature."""
        if self.pattern is None or (self.node and not node.startswith(self.node)):
            return False
        return bool(re.search(self.pattern, line))


class _File(RootModel[dict[str, Signature]]):
    pass


@cache
def load_signatures(path: Path = FILE) -> dict[str, Signature]:
    """All signatures by name, the more telling first."""
    return toml.load(path, _File).root
