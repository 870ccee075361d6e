"""llama: a dense model, the control beside every architecture that breaks."""

from typing import ClassVar

from lab.models.base import EMBD, Architecture, Metadata, Weights, common

HEADS, KV_HEADS, HEAD = 4, 2, 16


class Llama(Architecture):
    """Grouped-query attention and a gated feed-forward block in each layer."""

    arch: ClassVar[str] = "llama"

    def metadata(self) -> Metadata:
        """See `Architecture`."""
        return common(self.layers) | {
            "attention.head_count": HEADS,
            "attention.head_count_kv": KV_HEADS,
            "rope.dimension_count": HEAD,
        }

    def tensors(self, weights: Weights) -> None:
        """See `Architecture`."""
        weights.ends()
        for layer in range(self.layers):
            block = f"blk.{layer}"
            weights.norm(f"{block}.attn_norm", EMBD)
            weights.attention(block, HEADS, KV_HEADS, HEAD)
            weights.norm(f"{block}.ffn_norm", EMBD)
            weights.feed_forward(block)

    def structure(self) -> str:
        """See `Architecture`."""
        return "dense"
