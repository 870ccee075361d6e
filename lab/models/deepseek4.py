"""deepseek4 (DeepSeek V4): sliding-window attention with compressed memory, hyper-connections.

Each layer has a compression ratio: 0 = window only, 4 = with an indexer over groups of 4 tokens,
128 = dense over groups of 128. The compressor's state lives outside the KV cache; where it lands
on another worker than its layer, the graph refers to memory the worker does not have (upstream
issue #28047).
"""

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from lab.models.base import (
    EMBD,
    EXPERTS,
    EXPERTS_USED,
    FF,
    MAX_LAYERS,
    TOKENS,
    Architecture,
    Metadata,
    Weights,
    common,
    experts,
    schedule,
)

HEADS, ROPE = 4, 32
HEAD = 64
"""A size that flash attention has kernels for on every backend."""
Q_RANK = 32
GROUPS, GROUP_RANK = 2, 32
INDEXER_HEADS = 4
STREAMS = 4
"""Hyper-connection streams; the graph takes no other number."""
WINDOW = 128
HASHED = 1
"""Layers in front whose experts are looked up by token, not routed."""
RATIOS = (0, 4, 128)


class DeepSeek4(Architecture):
    """Grouped output projections, compressors, hyper-connections, a mixture of experts."""

    arch: ClassVar[str] = "deepseek4"

    ratios: tuple[int, ...] = Field(min_length=1, max_length=MAX_LAYERS)
    """For each layer: 0, 4 or 128 tokens to one compressed token (0 = none)."""
    top_k: int = Field(default=32, ge=1, le=4096)
    """Compressed tokens that the indexer of a ratio-4 layer selects."""
    indexer_head: Literal[64, 128] = 128
    """Size of an indexer's head. b11434 divides by zero where it equals an attention head's, 64."""

    @model_validator(mode="before")
    @classmethod
    def _real_schedule(cls, data: Any) -> Any:
        return schedule(data, "ratios", lambda layer: (4, 128)[layer % 2] if layer >= 2 else 0)

    @field_validator("ratios")
    @classmethod
    def _known(cls, ratios: tuple[int, ...]) -> tuple[int, ...]:
        wrong = sorted(set(ratios) - set(RATIOS))
        if wrong:
            raise ValueError(f"ratio {wrong[0]} is not one of 0, 4, 128: the loader takes no other")
        return ratios

    @model_validator(mode="after")
    def _one_per_layer(self) -> "DeepSeek4":
        self.match("ratios", self.ratios)
        return self

    def metadata(self) -> Metadata:
        """See `Architecture`."""
        own: Metadata = {
            "attention.head_count": HEADS,
            "attention.head_count_kv": 1,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "attention.q_lora_rank": Q_RANK,
            "attention.sliding_window": WINDOW,
            "attention.output_group_count": GROUPS,
            "attention.output_lora_rank": GROUP_RANK,
            "attention.compress_ratios": list(self.ratios),
            "attention.compress_rope_freq_base": 160000.0,
            "attention.indexer.head_count": INDEXER_HEADS,
            "attention.indexer.key_length": self.indexer_head,
            "attention.indexer.top_k": self.top_k,
            "rope.dimension_count": ROPE,
            "expert_shared_count": 1,
            "expert_gating_func": 4,  # square root of softplus; the loader takes no other
            "expert_weights_norm": True,
            "expert_weights_scale": 1.5,
            "swiglu_clamp_exp": [10.0] * self.layers,
            "hash_layer_count": HASHED,
            "hyper_connection.count": STREAMS,
            "hyper_connection.sinkhorn_iterations": 4,
            "hyper_connection.epsilon": 1e-6,
        }
        return common(self.layers) | experts() | own

    def tensors(self, weights: Weights) -> None:
        """See `Architecture`."""
        weights.ends()
        _streams(weights, "output_hc", STREAMS, scales=1)
        for layer, ratio in enumerate(self.ratios):
            block = f"blk.{layer}"
            mixes = (2 + STREAMS) * STREAMS
            _streams(weights, f"{block}.hc_attn", mixes, scales=3)
            _streams(weights, f"{block}.hc_ffn", mixes, scales=3)
            _attention(weights, block)
            if ratio:
                # Ratio 4 overlaps: each group also reads the one before it.
                wide = 2 if ratio == 4 else 1
                _compressor(weights, f"{block}.attn_compressor", HEAD, wide, ratio)
            if ratio == 4:
                weights.linear(f"{block}.indexer.proj", INDEXER_HEADS, EMBD)
                weights.linear(
                    f"{block}.indexer.attn_q_b", INDEXER_HEADS * self.indexer_head, Q_RANK
                )
                _compressor(weights, f"{block}.indexer_compressor", self.indexer_head, 2, ratio)
            weights.norm(f"{block}.ffn_norm", EMBD)
            weights.experts(block)
            if layer < HASHED:
                chosen = np.arange(len(TOKENS))[:, None] + np.arange(EXPERTS_USED)
                weights.put(f"{block}.ffn_gate_tid2eid.weight", (chosen % EXPERTS).astype(np.int32))
            else:
                weights.vector(f"{block}.exp_probs_b.bias", EXPERTS)
            weights.feed_forward(block, "_shexp", FF // 2)

    def structure(self) -> str:
        """See `Architecture`."""
        return f"ratios {' '.join(map(str, self.ratios))}, {EXPERTS} experts"


def _streams(weights: Weights, name: str, mixes: int, *, scales: int) -> None:
    """How a block reads from the streams, writes to them, and mixes them."""
    weights.linear(f"{name}_fn", mixes, STREAMS * EMBD)
    weights.vector(f"{name}_base.weight", mixes, std=0.5)
    weights.vector(f"{name}_scale.weight", scales, mean=1.0)


def _attention(weights: Weights, block: str) -> None:
    weights.norm(f"{block}.attn_norm", EMBD)
    weights.vector(f"{block}.attn_sinks.weight", HEADS, std=0.5)
    weights.linear(f"{block}.attn_q_a", Q_RANK, EMBD)
    weights.norm(f"{block}.attn_q_a_norm", Q_RANK)
    weights.linear(f"{block}.attn_q_b", HEADS * HEAD, Q_RANK)
    weights.linear(f"{block}.attn_kv", HEAD, EMBD)
    weights.norm(f"{block}.attn_kv_a_norm", HEAD, gain=2.0)
    weights.linear(f"{block}.attn_output_a", GROUPS * GROUP_RANK, HEADS * HEAD // GROUPS, gain=1.5)
    weights.back(f"{block}.attn_output_b", EMBD, GROUPS * GROUP_RANK)


def _compressor(weights: Weights, name: str, head: int, wide: int, ratio: int) -> None:
    weights.linear(f"{name}_kv", wide * head, EMBD)
    weights.linear(f"{name}_gate", wide * head, EMBD)
    weights.vector(f"{name}_ape.weight", ratio, wide * head, std=0.5)
    weights.norm(f"{name}_norm", head, gain=2.0)
