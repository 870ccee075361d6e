"""glm-dsa (GLM 5.x): latent attention whose sparse selection is shared between layers.

A layer has its own indexer, or uses the top-k of the last layer before it that has one. A split
between two workers inside such a group is what upstream issue #28047 is about.
"""

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from lab.models.base import (
    EMBD,
    EXPERTS,
    FF,
    MAX_LAYERS,
    Architecture,
    Metadata,
    Weights,
    common,
    experts,
    schedule,
)

HEADS, ROPE, NOPE, VALUE = 4, 32, 16, 32
Q_RANK, KV_RANK = 32, 64
INDEXER_HEADS = 4
INDEXER_HEAD = 64
"""The indexer's Hadamard transform needs a multiple of 64. It is twice ROPE, as in the real model:
b10338 takes the one half's size for the other's offset, and asserts where they differ."""
DENSE = 1
"""Layers in front without experts."""
SHARING_CONTEXT = 1048576
"""From this trained context on, the loader takes the model for one that shares indexers."""


class GlmDsa(Architecture):
    """Latent attention, a sparse indexer, a mixture of experts with a shared one."""

    arch: ClassVar[str] = "glm-dsa"

    indexer: tuple[Literal[0, 1], ...] = Field(min_length=1, max_length=MAX_LAYERS)
    """For each layer: 1 = has its own indexer, 0 = shares the one before."""
    top_k: int = Field(default=32, ge=1, le=4096)
    """Tokens that the indexer selects. Attention is sparse only in contexts longer than this."""

    @model_validator(mode="before")
    @classmethod
    def _real_schedule(cls, data: Any) -> Any:
        return schedule(data, "indexer", lambda layer: int(layer < 3 or (layer - 2) % 4 == 0))

    @field_validator("indexer")
    @classmethod
    def _first_is_full(cls, indexer: tuple[int, ...]) -> tuple[int, ...]:
        if indexer[0] != 1:
            raise ValueError("the first layer must be 1: there is no indexer before it to share")
        return indexer

    @model_validator(mode="after")
    def _one_per_layer(self) -> "GlmDsa":
        self.match("indexer", self.indexer)
        return self

    def metadata(self) -> Metadata:
        """See `Architecture`."""
        own: Metadata = {
            "attention.head_count": HEADS,
            # Absorbed latent attention is multi-query: one latent head serves all.
            "attention.head_count_kv": 1,
            "attention.key_length": KV_RANK + ROPE,
            "attention.value_length": KV_RANK,
            "attention.key_length_mla": NOPE + ROPE,
            "attention.value_length_mla": VALUE,
            "attention.q_lora_rank": Q_RANK,
            "attention.kv_lora_rank": KV_RANK,
            "attention.indexer.head_count": INDEXER_HEADS,
            "attention.indexer.key_length": INDEXER_HEAD,
            "attention.indexer.top_k": self.top_k,
            "attention.indexer.types": list[int](self.indexer),
            "rope.dimension_count": ROPE,
            "leading_dense_block_count": DENSE,
            "expert_shared_count": 1,
            "expert_gating_func": 2,  # sigmoid
            "expert_weights_norm": True,
            "expert_weights_scale": 1.0,
        }
        return common(self.layers, context=SHARING_CONTEXT) | experts() | own

    def tensors(self, weights: Weights) -> None:
        """See `Architecture`."""
        weights.ends()
        for layer, own in enumerate(self.indexer):
            block = f"blk.{layer}"
            self._attention(weights, block)
            if own:
                self._indexer(weights, block)
            weights.norm(f"{block}.ffn_norm", EMBD)
            if layer < DENSE:
                weights.feed_forward(block)
                continue
            weights.experts(block)
            weights.vector(f"{block}.exp_probs_b.bias", EXPERTS)
            weights.feed_forward(block, "_shexp", FF // 2)

    @staticmethod
    def _attention(weights: Weights, block: str) -> None:
        weights.norm(f"{block}.attn_norm", EMBD)
        weights.linear(f"{block}.attn_q_a", Q_RANK, EMBD)
        weights.norm(f"{block}.attn_q_a_norm", Q_RANK)
        weights.linear(f"{block}.attn_q_b", HEADS * (NOPE + ROPE), Q_RANK, gain=1.5)
        weights.linear(f"{block}.attn_kv_a_mqa", KV_RANK + ROPE, EMBD)
        weights.norm(f"{block}.attn_kv_a_norm", KV_RANK)
        weights.linear(f"{block}.attn_k_b", HEADS, KV_RANK, NOPE, gain=1.5)
        weights.linear(f"{block}.attn_v_b", HEADS, VALUE, KV_RANK)
        weights.back(f"{block}.attn_output", EMBD, HEADS * VALUE, gain=1.5)

    @staticmethod
    def _indexer(weights: Weights, block: str) -> None:
        weights.linear(f"{block}.indexer.proj", INDEXER_HEADS, EMBD)
        weights.linear(f"{block}.indexer.attn_k", INDEXER_HEAD, EMBD)
        weights.linear(f"{block}.indexer.attn_q_b", INDEXER_HEADS * INDEXER_HEAD, Q_RANK)
        weights.norm(f"{block}.indexer.k_norm", INDEXER_HEAD)
        weights.vector(f"{block}.indexer.k_norm.bias", INDEXER_HEAD)

    def structure(self) -> str:
        """See `Architecture`: F = own indexer, s = shares."""
        pattern = " ".join("F" if own else "s" for own in self.indexer)
        return f"indexer {pattern}, {EXPERTS} experts"
