"""llama: a dense model, the control beside every architecture that breaks."""

from typing import ClassVar

from pydantic import Field

from lab.models.base import EMBD, FF, Architecture, Metadata, Weights, common

HEADS, KV_HEADS, HEAD = 4, 2, 16


class Llama(Architecture):
    """Grouped-query attention and a gated feed-forward block in each layer."""

    arch: ClassVar[str] = "llama"

    feed_forward: int = Field(default=FF, ge=32, le=131072, multiple_of=32)
    """Width of the feed-forward block. Above 40960 its tensors are over the 10 MiB up to which a
    worker with a cache of tensors (`-c`) keeps none."""
    quantised: bool = False
    """Q8_0 in the layers. Their rows are 64 long, no multiple of the 512 that a remote buffer may
    have to be padded to (#11807)."""

    def metadata(self) -> Metadata:
        """See `Architecture`."""
        return common(self.layers) | {
            "attention.head_count": HEADS,
            "attention.head_count_kv": KV_HEADS,
            "rope.dimension_count": HEAD,
            "feed_forward_length": self.feed_forward,
        }

    def tensors(self, weights: Weights) -> None:
        """See `Architecture`."""
        weights.ends()
        for layer in range(self.layers):
            block = f"blk.{layer}"
            weights.norm(f"{block}.attn_norm", EMBD)
            weights.attention(block, HEADS, KV_HEADS, HEAD)
            weights.norm(f"{block}.ffn_norm", EMBD)
            weights.feed_forward(block, size=self.feed_forward)
        if self.quantised:
            weights.quantise("blk.")

    def structure(self) -> str:
        """See `Architecture`."""
        return "dense, Q8_0" if self.quantised else "dense"
