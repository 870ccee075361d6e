"""gpt-oss: a plain mixture of experts, the control beside the sparse-attention ones."""

from typing import ClassVar

from lab.models.base import (
    EMBD,
    EXPERTS,
    FF,
    Architecture,
    Metadata,
    Weights,
    common,
    experts,
)

HEADS, KV_HEADS, HEAD = 4, 2, 16
WINDOW = 128


class GptOss(Architecture):
    """Sliding-window attention in every second layer, attention sinks, biases everywhere."""

    arch: ClassVar[str] = "gpt-oss"

    def metadata(self) -> Metadata:
        """See `Architecture`."""
        own: Metadata = {
            "attention.head_count": HEADS,
            "attention.head_count_kv": KV_HEADS,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "attention.sliding_window": WINDOW,
            "rope.dimension_count": HEAD,
        }
        return common(self.layers) | experts() | own

    def tensors(self, weights: Weights) -> None:
        """See `Architecture`."""
        weights.ends()
        for layer in range(self.layers):
            block = f"blk.{layer}"
            weights.norm(f"{block}.attn_norm", EMBD)
            weights.attention(block, HEADS, KV_HEADS, HEAD)
            weights.vector(f"{block}.attn_q.bias", HEADS * HEAD)
            weights.vector(f"{block}.attn_k.bias", KV_HEADS * HEAD)
            weights.vector(f"{block}.attn_v.bias", KV_HEADS * HEAD)
            weights.back_bias(f"{block}.attn_output.bias", EMBD)
            weights.vector(f"{block}.attn_sinks.weight", HEADS, std=0.5)
            weights.norm(f"{block}.post_attention_norm", EMBD)
            weights.experts(block)
            weights.vector(f"{block}.ffn_gate_inp.bias", EXPERTS)
            weights.vector(f"{block}.ffn_gate_exps.bias", EXPERTS, FF // 2)
            weights.vector(f"{block}.ffn_up_exps.bias", EXPERTS, FF // 2)
            weights.back_bias(f"{block}.ffn_down_exps.bias", EXPERTS, EMBD)

    def structure(self) -> str:
        """See `Architecture`: w = sliding window, F = full attention."""
        pattern = " ".join("wF"[layer % 2] for layer in range(self.layers))
        return f"attention {pattern}, {EXPERTS} experts"
