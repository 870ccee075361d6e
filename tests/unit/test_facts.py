"""Precursors in the head's log, as facts; and what two cases did differently."""

from __future__ import annotations

from pathlib import Path

from fake_evidence import crashed

from lab.evidence import Evidence
from lab.facts import facts

LOG = """\
2026-12-01T05:00:00.1Z load_tensors: RPC0[worker1:50051] model buffer size =     1.48 MiB
2026-12-01T05:00:00.1Z llama_kv_cache: RPC0[worker1:50051] KV buffer size =     1.50 MiB
2026-12-01T05:00:00.1Z llama_kv_cache: RPC0[worker1:50051] KV buffer size =     0.75 MiB
2026-12-01T05:00:00.1Z llama_memory_recurrent: RPC0[worker2:50052] RS buffer size =     0.25 MiB
2026-12-01T05:00:00.1Z resolve_fused_ops: layer 4 is assigned to device RPC1 but fused Gated Delta \
Net (chunked) is assigned to device RPC0 (usually due to missing support)
"""


def test_buffers_add_up_by_device_and_misplaced_operations_are_named(tmp_path: Path) -> None:
    evidence = Evidence(crashed(tmp_path / "case").path)
    evidence.log_path("head").write_text(LOG)
    assert facts(evidence) == {
        "buffers": {
            "weights": {"RPC0[worker1:50051]": 1.48},
            "kv": {"RPC0[worker1:50051]": 2.25},
            "recurrent": {"RPC0[worker2:50052]": 0.25},
        },
        "misplaced": [
            {
                "layer": 4,
                "device": "RPC1",
                "what": "fused Gated Delta Net (chunked)",
                "on": "RPC0",
            }
        ],
    }
