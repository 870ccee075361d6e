"""What every architecture shares: its base class, its sizes, its vocabulary, its weights."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from math import prod, sqrt
from typing import Any, ClassVar

import gguf
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lab.toml import Strict

EMBD = 64
"""Width of the residual stream."""
FF = 128
"""Width of a dense feed-forward block; an expert has half of it."""
EXPERTS, EXPERTS_USED = 4, 2
CONTEXT = 131072
"""Trained context in tokens. Only a number in the file: memory follows the server's `-c`."""
MAX_LAYERS = 64
SPACE = "\u2581"
"""SentencePiece's spelling of a space inside a token."""

Value = str | bool | int | float | list[int] | list[float] | list[str]
Metadata = dict[str, Value]


class Architecture(Strict, ABC):
    """The parameters of one architecture, and what they put into a file.

    A subclass adds its own fields and validators and fills in the three methods. Sizes that no
    report depends on are constants, not parameters.
    """

    arch: ClassVar[str]
    """llama.cpp's `general.architecture`."""

    layers: int = Field(default=6, ge=1, le=MAX_LAYERS)

    def match(self, name: str, pattern: tuple[int, ...]) -> None:
        """Check a per-layer list against `layers`."""
        if len(pattern) != self.layers:
            entries = "1 entry" if len(pattern) == 1 else f"{len(pattern)} entries"
            raise ValueError(
                f"{name} has {entries} for {self.layers} layers; "
                "give one for each layer, or leave out `layers`"
            )

    @abstractmethod
    def metadata(self) -> Metadata:
        """The keys of the architecture, without the `<arch>.` in front."""

    @abstractmethod
    def tensors(self, weights: "Weights") -> None:
        """Add every tensor that the loader asks for."""

    @abstractmethod
    def structure(self) -> str:
        """What differs from layer to layer, in a few words."""


def common(layers: int, *, context: int = CONTEXT) -> Metadata:
    """The keys that every architecture here needs."""
    return {
        "vocab_size": len(TOKENS),
        "context_length": context,
        "embedding_length": EMBD,
        "block_count": layers,
        "feed_forward_length": FF,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }


def experts() -> Metadata:
    """The keys that every mixture of experts here needs."""
    return {
        "expert_count": EXPERTS,
        "expert_used_count": EXPERTS_USED,
        "expert_feed_forward_length": FF // 2,
    }


def schedule(data: Any, key: str, rule: Callable[[int], int]) -> Any:
    """`data` with its per-layer list `key` and `layers` made to agree where one is not given.

    `rule` gives the value of one layer as the real model has it.
    """
    if not isinstance(data, dict):
        return data
    pattern, layers = data.get(key), data.get("layers", 6)
    if pattern is None and isinstance(layers, int):
        return data | {key: [rule(layer) for layer in range(min(layers, MAX_LAYERS))]}
    if isinstance(pattern, list | tuple) and "layers" not in data:
        return data | {"layers": len(pattern)}
    return data


# --- vocabulary -------------------------------------------------------------------------------

SPECIAL = ("<unk>", "<s>", "</s>")
_CHARACTERS = [SPACE if c == 32 else chr(c) for c in range(32, 127)]
TOKENS = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *_CHARACTERS]
FIRST_CHARACTER = len(TOKENS) - len(_CHARACTERS)
"""Tokens below this one are special or bytes and are never generated."""


def tokenizer() -> Metadata:
    """A SentencePiece-like tokenizer without merges.

    A prompt of N printable ASCII characters is N + 1 tokens: one for each, and BOS in front. Any
    other character costs one token for each of its UTF-8 bytes.
    """
    kind = gguf.TokenType
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.scores": [0.0] * len(TOKENS),
        "tokenizer.ggml.token_type": [
            int(kind.UNKNOWN),
            *[int(kind.CONTROL)] * 2,
            *[int(kind.BYTE)] * 256,
            *[int(kind.NORMAL)] * len(_CHARACTERS),
        ],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.ggml.remove_extra_whitespaces": False,
    }


# --- weights ----------------------------------------------------------------------------------


class Weights:
    """The tensors of one model, in the order of the file.

    Each tensor draws from its own stream, named by the seed and the tensor. So a model with one
    more layer, or another layer pattern, keeps the other weights; and the bytes depend on neither
    the platform nor NumPy's version.

    Element 0 of the residual stream is kept for a constant: every token brings it and no layer
    writes to it. The output rows of special and byte tokens read only this element, negatively:
    an end of sequence or a broken UTF-8 sequence is never generated, sampled or greedy.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.all: dict[str, NDArray[Any]] = {}
        self.types: dict[str, gguf.GGMLQuantizationType] = {}
        """Of the tensors that are quantised."""

    def put(self, name: str, values: NDArray[Any]) -> None:
        """Add a tensor as it is. NumPy's shape is the reverse of ggml's `ne`."""
        if name in self.all:
            raise ValueError(f"tensor {name} twice")
        self.all[name] = np.ascontiguousarray(values)

    def random(self, name: str, shape: tuple[int, ...], std: float) -> NDArray[np.float32]:
        """Uniform values with mean 0; not added to the model."""
        stream = hashlib.shake_256(f"{self.seed}/{name}".encode()).digest(4 * prod(shape))
        unit = np.frombuffer(stream, dtype="<u4").reshape(shape) / 2.0**31 - 1.0
        return (unit * (sqrt(3) * std)).astype(np.float32)

    def linear(self, name: str, *shape: int, gain: float = 1.0) -> None:
        """A weight (..., out, in): inputs of variance 1 give outputs of variance gain squared."""
        self.put(f"{name}.weight", self.random(name, shape, gain / sqrt(shape[-1])))

    def back(self, name: str, *shape: int, gain: float = 1.0) -> None:
        """A weight (..., EMBD, in) whose result is added to the residual stream.

        The gain is chosen so that each layer adds about as much as the embedding brings: a wrong
        layer shows in the answer.
        """
        values = self.random(name, shape, gain / sqrt(shape[-1]))
        values[..., 0, :] = 0
        self.put(f"{name}.weight", values)

    def vector(self, name: str, *shape: int, mean: float = 0.0, std: float = 0.1) -> None:
        """A bias, a norm (mean 1) or a table, named in full."""
        self.put(name, mean + self.random(name, shape, std))

    def back_bias(self, name: str, *shape: int) -> None:
        """A bias that is added to the residual stream, named in full."""
        values = self.random(name, shape, 0.1)
        values[..., 0] = 0
        self.put(name, values)

    def norm(self, name: str, size: int, gain: float = 1.0) -> None:
        """The weight of an RMS norm. A gain sharpens an attention that has norms inside."""
        self.vector(f"{name}.weight", size, mean=gain)

    def quantise(self, prefix: str) -> None:
        """Make Q8_0 of the matrices whose names begin so."""
        kind = gguf.GGMLQuantizationType.Q8_0
        for name, values in self.all.items():
            if name.startswith(prefix) and values.ndim > 1:
                self.all[name] = gguf.quants.quantize(values, kind)
                self.types[name] = kind

    def ends(self) -> None:
        """Embedding, output norm and output."""
        embedding = self.random("token_embd", (len(TOKENS), EMBD), 1.0)
        embedding[:, 0] = 2.0
        output = self.random("output", (len(TOKENS), EMBD), 4.0 / sqrt(EMBD))
        output[:, 0] = 0.0
        output[:FIRST_CHARACTER] = 0.0
        output[:FIRST_CHARACTER, 0] = -64.0
        self.put("token_embd.weight", embedding)
        self.norm("output_norm", EMBD)
        self.put("output.weight", output)

    def attention(
        self, block: str, heads: int, kv_heads: int, head: int, *, gates: int = 0
    ) -> None:
        """Grouped-query attention; `gates` more outputs per query head."""
        self.linear(f"{block}.attn_q", heads * (head + gates), EMBD, gain=1.5)
        self.linear(f"{block}.attn_k", kv_heads * head, EMBD, gain=1.5)
        self.linear(f"{block}.attn_v", kv_heads * head, EMBD)
        self.back(f"{block}.attn_output", EMBD, heads * head, gain=1.5)

    def feed_forward(self, block: str, suffix: str = "", size: int = FF, count: int = 0) -> None:
        """A gated feed-forward block, or `count` experts of it in one tensor."""
        many = (count,) if count else ()
        self.linear(f"{block}.ffn_gate{suffix}", *many, size, EMBD)
        self.linear(f"{block}.ffn_up{suffix}", *many, size, EMBD)
        self.back(f"{block}.ffn_down{suffix}", *many, EMBD, size, gain=2.0)

    def experts(self, block: str) -> None:
        """A router and its experts. A strong router keeps choices away from ties."""
        self.linear(f"{block}.ffn_gate_inp", EXPERTS, EMBD, gain=2.0)
        self.feed_forward(block, "_exps", FF // 2, EXPERTS)
