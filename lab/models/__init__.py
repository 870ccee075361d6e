"""Tiny models of real architectures: random weights, a fixed seed, real layer structure.

To add an architecture, write one file with a subclass of `lab.models.base.Architecture` (take
`llama.py` as the pattern), list its class in `ARCHITECTURES`, and give it a line in `STANDARD`.
The keys that its loader asks for are in llama.cpp's `src/llama-arch.cpp`, the tensors in
`src/models/<arch>.cpp`.
"""

from typing import Any

from pydantic import Field

from lab.errors import InputError
from lab.models.base import Architecture
from lab.models.deepseek4 import DeepSeek4
from lab.models.glm_dsa import GlmDsa
from lab.models.gpt_oss import GptOss
from lab.models.llama import Llama
from lab.models.qwen35moe import Qwen35Moe
from lab.models.spec import Model, ModelSpec
from lab.models.store import build
from lab.toml import Strict, unknown, validate

__all__ = ["ARCHITECTURES", "STANDARD", "Model", "ModelSpec", "build", "describe", "parse"]

ARCHITECTURES: dict[str, type[Architecture]] = {
    kind.arch: kind for kind in (Llama, GptOss, GlmDsa, DeepSeek4, Qwen35Moe)
}
"""By llama.cpp's name."""


class _Head(Strict):
    """The keys of a model that are no parameters of its architecture."""

    arch: str
    seed: int = Field(default=42, ge=0)


def parse(data: dict[str, Any], where: str) -> ModelSpec:
    """The spec that `data` describes: `{"arch": "glm-dsa", "layers": 6, "seed": 42}`.

    Raises:
        InputError: no such architecture, or what `lab.toml.validate` finds.
    """
    head = validate({k: v for k, v in data.items() if k in _Head.model_fields}, _Head, where)
    if head.arch not in ARCHITECTURES:
        raise InputError(unknown("architecture", head.arch, sorted(ARCHITECTURES)), where=where)
    rest = {k: v for k, v in data.items() if k not in _Head.model_fields}
    return ModelSpec(head.arch, validate(rest, ARCHITECTURES[head.arch], where), head.seed)


def describe(spec: ModelSpec) -> str:
    """One line: the architecture, its layers, and what differs from layer to layer."""
    return str(spec)


_STANDARD: dict[str, dict[str, Any]] = {
    "llama": {"arch": "llama"},
    "gpt-oss": {"arch": "gpt-oss"},
    "glm-dsa": {"arch": "glm-dsa", "indexer": [1, 1, 1, 0, 0, 0]},
    "glm-dsa-full": {"arch": "glm-dsa", "indexer": [1] * 6},
    "deepseek4": {"arch": "deepseek4", "ratios": [0, 0, 4, 128, 4, 128]},
    "deepseek4-front": {"arch": "deepseek4", "ratios": [4, 128, 0, 0, 0, 0]},
    "qwen35moe": {"arch": "qwen35moe"},
}

STANDARD = {name: parse(data, f"standard model {name}") for name, data in _STANDARD.items()}
"""The models that scenarios name."""
