"""Which model: an architecture, its parameters and a seed."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.models.base import Architecture


@dataclass(frozen=True)
class ModelSpec:
    """A model as a scenario names it; equal specs give equal bytes."""

    arch: str
    params: Architecture
    seed: int = 42

    def plain(self) -> dict[str, Any]:
        """The dict that `lab.models.parse` takes, with every default filled in."""
        return {"arch": self.arch, "seed": self.seed, **self.params.model_dump(mode="json")}

    def canonical(self) -> str:
        """One line that is the same for equal specs."""
        return json.dumps(self.plain(), sort_keys=True)

    def __str__(self) -> str:
        return f"{self.arch}, {self.params.layers} layers: {self.params.structure()}"


@dataclass(frozen=True)
class Model:
    """A model on disk."""

    path: Path
    sha256: str
    """Of the whole file."""
    spec: ModelSpec

    @property
    def layers(self) -> int:
        """Layers of the model; `-ts` and `-ngl` count one more, the output."""
        return self.spec.params.layers

    @property
    def size(self) -> int:
        """Bytes."""
        return self.path.stat().st_size
