"""Signatures: each finds its line, on its node, and nothing else."""

import re
from pathlib import Path

import pytest
from fake_evidence import GLUED, LOST, RECORDED

from lab.errors import InputError
from lab.evidence import Evidence
from lab.outcome import BY_FAULT, OUT_OF_MEMORY
from lab.signatures import load_signatures

ANY = ("head", "worker1", "worker12")
WORKERS = ("worker1", "worker12")
HEAD = ("head",)

EXAMPLES: list[tuple[str, tuple[str, ...], str]] = [
    ("create-node-invalid-data-ptr", WORKERS, "[create_node] invalid data ptr"),
    ("create-node-invalid-data-ptr", WORKERS, GLUED),
    ("op-limit", WORKERS, "ggml_backend_sim_graph_compute: TOP_K failed: rows of 1280"),
    ("op-limit", WORKERS, "ggml_cuda_compute_forward: ARGSORT failed"),
    ("unsupported-op", WORKERS, "ggml_metal_op_encode_impl: error: unsupported op 'TOP_K'"),
    ("rpc-connect-failed", HEAD, "Failed to connect to worker1:50051"),
    (
        "rpc-handshake-failed",
        HEAD,
        "ggml-rpc.cpp:550: RPC handshake failed for worker1:50051",
    ),
    ("rpc-version-mismatch", ANY, "RPC server version mismatch: 6.0.0"),
    ("rpc-version-mismatch", ANY, "RPC client version mismatch"),
    ("rpc-remote-crashed", HEAD, LOST),
    ("terminate-without-exception", ANY, "terminate called without an active exception"),
    ("ggml-assert", ANY, "/src/ggml/src/ggml.c:3100: GGML_ASSERT(ggml_can_mul_mat(a, b)) failed"),
    ("unknown-buffer-type", HEAD, 'error while handling argument "-ot": unknown buffer type'),
    ("gguf-load-failed", HEAD, "llama_model_load: error loading model: missing tensor"),
    ("gguf-load-failed", HEAD, "srv    load_model: failed to load model, '/models/x.gguf'"),
]


def test_every_signature_has_an_example() -> None:
    logged = {name for name, signature in load_signatures().items() if signature.pattern}
    assert {name for name, _, _ in EXAMPLES} == logged


def test_what_no_line_says_is_what_the_outcome_says_by_itself() -> None:
    silent = {name for name, signature in load_signatures().items() if not signature.pattern}
    assert silent == {OUT_OF_MEMORY, BY_FAULT}


@pytest.mark.parametrize(("name", "nodes", "line"), EXAMPLES)
def test_a_signature_is_found_on_its_nodes_only(
    name: str, nodes: tuple[str, ...], line: str
) -> None:
    signature = load_signatures()[name]
    assert {node for node in ANY if signature.found_in(node, line)} == set(nodes)


@pytest.mark.parametrize(("name", "nodes", "line"), EXAMPLES)
def test_an_example_has_no_other_signature(name: str, nodes: tuple[str, ...], line: str) -> None:
    found = {
        other
        for other, signature in load_signatures().items()
        for node in ANY
        if signature.found_in(node, line)
    }
    assert found == {name}


def test_a_run_that_went_well_has_no_signature() -> None:
    evidence = Evidence(RECORDED / "llama-2w-f1793c1c4")
    lines = [(node, line) for node in evidence.nodes() for _, line in evidence.log(node)]
    assert lines
    for signature in load_signatures().values():
        assert not [line for node, line in lines if signature.found_in(node, line)]


def test_the_telling_signature_comes_before_the_one_that_follows_from_it() -> None:
    names = list(load_signatures())
    assert names.index("create-node-invalid-data-ptr") < names.index("rpc-remote-crashed")


def test_every_pattern_compiles_and_says_what_it_is_about() -> None:
    for signature in load_signatures().values():
        assert re.compile(signature.pattern or "")
        assert signature.about


GOOD = """
[ggml-assert]
pattern = 'GGML_ASSERT'
node = "worker"
about = "any failed assertion"
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("'GGML_ASSERT'", "'GGML_ASSERT('", "ggml-assert.pattern: not a regular expression: "),
        ("'GGML_ASSERT'", "5", "ggml-assert.pattern: input should be a valid string, not 5"),
        ('"worker"', '"worker1"', "ggml-assert.node: input should be 'head' or 'worker', not"),
        ("about =", "abuot =", "ggml-assert.about: required, but missing"),
        ("about =", "log = 1\nabout =", "ggml-assert.log: unknown key 'log'; allowed: about, node"),
        ("[ggml-assert]", "[ggml-assert", "not valid TOML"),
        ("[ggml-assert]", "x = 1\n[ggml-assert]", "x: input should be a valid dictionary"),
    ],
)
def test_a_broken_signatures_file_is_told_by_file_and_field(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "signatures.toml"
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_signatures(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
