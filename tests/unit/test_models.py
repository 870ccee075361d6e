"""Tiny models: the same bytes every time, a cache that heals, and specs that are checked."""

import hashlib
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner

from lab import models
from lab.cli.models import command
from lab.errors import InputError, LabError
from lab.models.base import FIRST_CHARACTER, TOKENS

STANDARD = list(models.STANDARD)


@pytest.fixture(autouse=True)
def _one_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the tests' own, shared by those that only read."""
    monkeypatch.setenv("RPCLAB_CACHE", str(tmp_path_factory.getbasetemp() / "models-cache"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("RPCLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def build(**data: Any) -> models.Model:
    return models.build(models.parse(data, "test"))


def value(reader: gguf.GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    assert field is not None, key
    return field.contents()


# --- bytes and cache --------------------------------------------------------------------------


@pytest.mark.parametrize("name", STANDARD)
def test_same_bytes_in_another_cache(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = models.build(models.STANDARD[name])
    monkeypatch.setenv("RPCLAB_CACHE", str(tmp_path / "other"))
    two = models.build(models.STANDARD[name])
    assert one.path != two.path
    assert one.path.read_bytes() == two.path.read_bytes()
    assert one.sha256 == two.sha256


def test_the_bytes_are_those_of_every_other_machine() -> None:
    # The first weights of a tensor, written down: neither NumPy nor the platform may change them.
    tensors = {t.name: t for t in gguf.GGUFReader(build(arch="llama").path).tensors}
    first = tensors["blk.0.attn_q.weight"].data[0, :2]
    assert first.tolist() == [-0.07062887400388718, -0.1502947211265564]


def test_seed_and_parameters_change_the_bytes() -> None:
    made = [
        build(arch="llama"),
        build(arch="llama", seed=43),
        build(arch="llama", layers=7),
        build(arch="glm-dsa"),
        build(arch="glm-dsa", top_k=16),
    ]
    assert len({model.sha256 for model in made}) == len(made)
    assert [model.layers for model in made] == [6, 6, 7, 6, 6]


def test_another_pattern_keeps_the_other_weights() -> None:
    shared, full = (
        {t.name: t.data for t in gguf.GGUFReader(models.build(models.STANDARD[name]).path).tensors}
        for name in ("glm-dsa", "glm-dsa-full")
    )
    assert set(full) - set(shared) == {
        f"blk.{layer}.indexer.{part}"
        for layer in (3, 4, 5)
        for part in (
            "proj.weight",
            "attn_k.weight",
            "attn_q_b.weight",
            "k_norm.weight",
            "k_norm.bias",
        )
    }
    assert all(np.array_equal(data, full[name]) for name, data in shared.items())


def test_a_second_call_writes_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(arch="llama")
    monkeypatch.setattr(gguf, "GGUFWriter", None)
    assert build(arch="llama") == first
    assert build(arch="llama", layers=6, seed=42) == first


@pytest.mark.parametrize("damage", [b"", b"GGUF but not really"])
def test_a_damaged_file_is_written_again(damage: bytes, cache: Path) -> None:
    first = build(arch="llama")
    intact = first.path.read_bytes()
    first.path.write_bytes(damage)
    assert build(arch="llama") == first
    assert first.path.read_bytes() == intact


def test_a_deleted_file_and_a_damaged_index_are_written_again(cache: Path) -> None:
    first = build(arch="llama")
    first.path.unlink()
    for note in (cache / "models/index").iterdir():
        note.write_text("no hash")
    assert build(arch="llama") == first
    assert first.path.is_file()


def test_many_at_once_make_one_whole_file(cache: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: build(arch="glm-dsa"), range(8)))
    assert len(set(made)) == 1
    assert hashlib.sha256(made[0].path.read_bytes()).hexdigest() == made[0].sha256


def test_a_cache_that_is_no_directory_is_the_labs_error(cache: Path) -> None:
    cache.write_text("in the way")
    with pytest.raises(LabError, match="cannot keep a model") as raised:
        build(arch="llama")
    assert "RPCLAB_CACHE" in raised.value.hint


def test_readable_by_the_nodes_and_nothing_left_over(cache: Path) -> None:
    model = build(arch="llama")
    assert stat.S_IMODE(model.path.stat().st_mode) == 0o644
    for folder in (cache, cache / "models"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert sorted(p.name for p in (cache / "models").iterdir()) == sorted(
        [model.path.name, "index"]
    )
    assert model.path.name == f"llama-{model.sha256[:12]}.gguf"


# --- what is in the files ---------------------------------------------------------------------


@pytest.mark.parametrize("name", STANDARD)
def test_readable_small_and_with_a_long_context(name: str) -> None:
    model = models.build(models.STANDARD[name])
    reader = gguf.GGUFReader(model.path)
    arch = model.spec.arch
    assert value(reader, "general.architecture") == arch
    assert value(reader, f"{arch}.block_count") == model.layers
    assert value(reader, f"{arch}.context_length") >= 131072
    assert 1e6 < model.size < 4e6
    assert all(np.isfinite(tensor.data).all() for tensor in reader.tensors)


@pytest.mark.parametrize("name", STANDARD)
def test_no_layer_writes_to_the_constant_that_keeps_bytes_and_eos_away(name: str) -> None:
    reader = gguf.GGUFReader(models.build(models.STANDARD[name]).path)
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    ends = (
        "attn_output",
        "attn_output_b",
        "ssm_out",
        "ffn_down",
        "ffn_down_exps",
        "ffn_down_shexp",
    )
    back = [n for n in tensors if n.startswith("blk.") and n.split(".")[2] in ends]
    assert len(back) >= 12
    for each in back:
        data = tensors[each]
        assert not (data[..., 0] if each.endswith("bias") else data[..., 0, :]).any(), each
    assert (tensors["token_embd.weight"][:, 0] > 0).all()
    output = tensors["output.weight"]
    assert (output[:FIRST_CHARACTER, 0] < 0).all()
    assert not output[:FIRST_CHARACTER, 1:].any()
    assert output[FIRST_CHARACTER:, 1:].any(axis=1).all()


def test_one_printable_character_is_one_token() -> None:
    reader = gguf.GGUFReader(build(arch="llama").path)
    assert value(reader, "tokenizer.ggml.tokens") == TOKENS
    assert len(TOKENS) == 3 + 256 + 95
    assert {len(token) for token in TOKENS[FIRST_CHARACTER:]} == {1}
    assert value(reader, "tokenizer.ggml.add_bos_token") is True
    assert value(reader, "tokenizer.ggml.add_space_prefix") is False


def test_glm_dsa_pattern_lands_in_the_file() -> None:
    model = build(arch="glm-dsa", indexer=[1, 0, 1, 0])
    reader = gguf.GGUFReader(model.path)
    assert model.layers == 4
    assert value(reader, "glm-dsa.attention.indexer.types") == [1, 0, 1, 0]
    assert value(reader, "glm-dsa.context_length") >= 1048576
    own = {t.name.split(".")[1] for t in reader.tensors if ".indexer." in t.name}
    assert own == {"0", "2"}


def test_deepseek4_ratios_land_in_the_file() -> None:
    reader = gguf.GGUFReader(models.build(models.STANDARD["deepseek4"]).path)
    assert value(reader, "deepseek4.attention.compress_ratios") == [0, 0, 4, 128, 4, 128]
    shapes = {t.name: t.shape.tolist() for t in reader.tensors if "compressor_ape" in t.name}
    assert shapes == {
        "blk.2.attn_compressor_ape.weight": [128, 4],
        "blk.2.indexer_compressor_ape.weight": [256, 4],
        "blk.3.attn_compressor_ape.weight": [64, 128],
        "blk.4.attn_compressor_ape.weight": [128, 4],
        "blk.4.indexer_compressor_ape.weight": [256, 4],
        "blk.5.attn_compressor_ape.weight": [64, 128],
    }


def test_qwen35moe_interval_lands_in_the_file() -> None:
    reader = gguf.GGUFReader(build(arch="qwen35moe", layers=4, full_attention_interval=2).path)
    assert value(reader, "qwen35moe.full_attention_interval") == 2
    tensors = {t.name: t.data for t in reader.tensors}
    recurrent = {name.split(".")[1] for name in tensors if name.endswith(".ssm_a")}
    assert recurrent == {"0", "2"}
    assert all((tensors[f"blk.{layer}.ssm_a"] < 0).all() for layer in recurrent)


@pytest.mark.parametrize(
    ("arch", "key", "pattern"),
    [
        ("glm-dsa", "indexer", (1, 1, 1, 0, 0, 0, 1, 0)),
        ("deepseek4", "ratios", (0, 0, 4, 128, 4, 128, 4, 128)),
    ],
)
def test_layers_alone_give_the_real_models_pattern(
    arch: str, key: str, pattern: tuple[int, ...]
) -> None:
    params = models.parse({"arch": arch, "layers": 8}, "test").params
    assert getattr(params, key) == pattern


# --- specs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STANDARD)
def test_a_spec_survives_its_plain_form(name: str) -> None:
    spec = models.STANDARD[name]
    again = models.parse(spec.plain(), "test")
    assert again == spec
    assert hash(again) == hash(spec)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, ["arch: required"]),
        ({"arch": "glm_dsa"}, ["unknown architecture 'glm_dsa'", "did you mean 'glm-dsa'?"]),
        ({"arch": "llama", "layer": 4}, ["layer: unknown key 'layer'", "'layers'"]),
        ({"arch": "llama", "indexer": [1]}, ["indexer: unknown key"]),
        ({"arch": "llama", "layers": 0}, ["layers", "greater than or equal to 1"]),
        ({"arch": "llama", "layers": 65}, ["layers", "less than or equal to 64"]),
        ({"arch": "llama", "layers": "many"}, ["layers", "'many'"]),
        ({"arch": "llama", "seed": -1}, ["seed", "-1"]),
        ({"arch": "glm-dsa", "layers": 4, "indexer": [1, 0]}, ["2 entries for 4 layers"]),
        ({"arch": "glm-dsa", "layers": "many"}, ["layers", "'many'"]),
        ({"arch": "glm-dsa", "layers": 65}, ["layers", "less than or equal to 64"]),
        ({"arch": "glm-dsa", "indexer": [0, 1]}, ["indexer: the first layer must be 1"]),
        ({"arch": "glm-dsa", "indexer": [1, 2]}, ["indexer.1", "0 or 1"]),
        ({"arch": "glm-dsa", "indexer": []}, ["indexer", "at least 1 item"]),
        ({"arch": "glm-dsa", "indexer": 1}, ["indexer", "tuple"]),
        ({"arch": "glm-dsa", "top_k": 0}, ["top_k"]),
        ({"arch": "deepseek4", "ratios": [0, 8]}, ["ratios: ratio 8 is not one of 0, 4, 128"]),
        ({"arch": "deepseek4", "layers": 3, "ratios": [0]}, ["ratios has 1 entry for 3 layers"]),
        ({"arch": "qwen35moe", "full_attention_interval": 0}, ["full_attention_interval"]),
    ],
)
def test_a_wrong_spec_says_what_and_where(data: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        models.parse(data, "28047.toml: models.mine")
    assert raised.value.where == "28047.toml: models.mine"
    for word in words:
        assert word in str(raised.value)


def test_describe_shows_what_differs_from_layer_to_layer() -> None:
    told = {name: models.describe(spec) for name, spec in models.STANDARD.items()}
    assert told["llama"] == "llama, 6 layers: dense"
    assert told["glm-dsa"] == "glm-dsa, 6 layers: indexer F F F s s s, 4 experts"
    assert told["deepseek4"] == "deepseek4, 6 layers: ratios 0 0 4 128 4 128, 4 experts"
    assert told["qwen35moe"] == "qwen35moe, 8 layers: attention r r r F r r r F, 4 experts"


# --- the verb ---------------------------------------------------------------------------------


def run(*args: str) -> Any:
    app = Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(args))


def test_a_name_prints_the_path_alone() -> None:
    assert Path(run("glm-dsa").stdout.removesuffix("\n")).is_file()


def test_the_table_and_the_json_name_every_model() -> None:
    table, data = run().stdout, run("--json").stdout
    for name in STANDARD:
        assert name in table
        assert f'"name": "{name}"' in data


def test_an_unknown_name_is_an_input_error() -> None:
    error = run("glm-dsa-ful").exception
    assert isinstance(error, InputError)
    assert "did you mean 'glm-dsa-full'?" in str(error)
