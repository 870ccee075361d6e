"""qwen35moe (Qwen 3.5): recurrent layers, and full attention in every n-th.

The recurrent state is memory that follows a layer to its worker; `-ts` and `-ot` that disagree
about the worker are what upstream issue #25644 is about.
"""

from typing import ClassVar

from pydantic import Field

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
)

HEADS, KV_HEADS, HEAD, ROPE = 4, 2, 32, 16
KEY_HEADS, VALUE_HEADS = 2, 4
STATE = 32
"""Size of a recurrent head, for keys and values alike."""
CONVOLUTION = 4


class Qwen35Moe(Architecture):
    """Gated delta net or gated attention, then a mixture of experts with a shared one."""

    arch: ClassVar[str] = "qwen35moe"

    layers: int = Field(default=8, ge=1, le=MAX_LAYERS)
    full_attention_interval: int = Field(default=4, ge=1, le=MAX_LAYERS)
    """Every n-th layer has full attention, the others are recurrent."""

    def metadata(self) -> Metadata:
        """See `Architecture`."""
        own: Metadata = {
            "attention.head_count": HEADS,
            "attention.head_count_kv": KV_HEADS,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "rope.dimension_count": ROPE,
            "rope.dimension_sections": [3, 3, 2, 0],
            "full_attention_interval": self.full_attention_interval,
            "expert_shared_feed_forward_length": FF // 2,
            "ssm.conv_kernel": CONVOLUTION,
            "ssm.inner_size": STATE * VALUE_HEADS,
            "ssm.state_size": STATE,
            "ssm.time_step_rank": VALUE_HEADS,
            "ssm.group_count": KEY_HEADS,
        }
        return common(self.layers) | experts() | own

    def tensors(self, weights: Weights) -> None:
        """See `Architecture`."""
        weights.ends()
        for layer in range(self.layers):
            block = f"blk.{layer}"
            weights.norm(f"{block}.attn_norm", EMBD)
            if self._full(layer):
                weights.attention(block, HEADS, KV_HEADS, HEAD, gates=HEAD)
                weights.norm(f"{block}.attn_q_norm", HEAD, gain=1.5)
                weights.norm(f"{block}.attn_k_norm", HEAD, gain=1.5)
            else:
                _delta_net(weights, block)
            weights.norm(f"{block}.post_attention_norm", EMBD)
            weights.experts(block)
            weights.vector(f"{block}.ffn_gate_inp_shexp.weight", EMBD)
            weights.feed_forward(block, "_shexp", FF // 2)

    def structure(self) -> str:
        """See `Architecture`: r = recurrent, F = full attention."""
        pattern = " ".join("rF"[self._full(layer)] for layer in range(self.layers))
        return f"attention {pattern}, {EXPERTS} experts"

    def _full(self, layer: int) -> bool:
        return (layer + 1) % self.full_attention_interval == 0


def _delta_net(weights: Weights, block: str) -> None:
    values = VALUE_HEADS * STATE
    channels = 2 * KEY_HEADS * STATE + values
    weights.linear(f"{block}.attn_qkv", channels, EMBD)
    weights.linear(f"{block}.attn_gate", values, EMBD)
    weights.linear(f"{block}.ssm_conv1d", channels, CONVOLUTION, gain=1.5)
    weights.vector(f"{block}.ssm_dt.bias", VALUE_HEADS)
    # The decay exponent: it must be negative, or the state grows without limit.
    weights.vector(f"{block}.ssm_a", VALUE_HEADS, mean=-0.5)
    weights.linear(f"{block}.ssm_beta", VALUE_HEADS, EMBD)
    weights.linear(f"{block}.ssm_alpha", VALUE_HEADS, EMBD)
    weights.norm(f"{block}.ssm_norm", STATE)
    weights.back(f"{block}.ssm_out", EMBD, values, gain=1.5)
