"""`rpclab plan`: wrong input, and the placement of recorded heads."""

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import gguf
import numpy as np
import pytest

from lab import models
from lab.errors import InputError
from lab.evidence import Evidence
from lab.outcome import classify
from lab.plan import cache, devices, flags, header
from lab.plan.compare import Logged, differences
from lab.plan.place import plan
from lab.plan.suggest import suggest
from lab.plan.warnings import Scene, warnings

WORKERS = [f"RPC{n}=worker{n + 1}:{50051 + n},16G" for n in range(3)]


def _header(name: str) -> header.Header:
    return header.read(models.build(models.STANDARD[name]).path)


def _scene(name: str, workers: int, *words: str) -> Scene:
    return Scene.of(_header(name), flags.parse(list(words)), devices.parse(WORKERS[:workers]))


def _names(scene: Scene) -> set[str]:
    return {rule.name for rule, _ in warnings(scene)}


@pytest.mark.parametrize(
    ("content", "says"), [(b"", "0 bytes"), (b"PK\3\4" * 9, "no GGUF"), (b"GGUF\3", "truncated")]
)
def test_wrong_model_file(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        header.read(path)


@pytest.mark.parametrize("keep", [0.01, 0.3, 0.9])
def test_truncated_model_file(tmp_path: Path, keep: float) -> None:
    whole = models.build(models.STANDARD["llama"]).path.read_bytes()
    path = tmp_path / "m.gguf"
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(InputError, match="truncated"):
        header.read(path)


def test_no_model_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.gguf"):
        with pytest.raises(InputError, match="cannot be read"):
            header.read(path)


def _split(folder: Path) -> list[Path]:
    """The llama model again, by gguf's own splitter."""
    whole = gguf.GGUFReader(models.build(models.STANDARD["llama"]).path)
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama", split_max_tensors=20)
    kept = {"block_count": 6, "embedding_length": 64, "context_length": 4096}
    for key, value in (kept | {"attention.head_count": 4}).items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_uint32("llama.attention.head_count_kv", 2)
    for tensor in whole.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("m-*.gguf"))


def test_split_model(tmp_path: Path) -> None:
    parts = _split(tmp_path)
    assert len(parts) == 3
    whole = _header("llama")
    for part in parts:
        read = header.read(part)
        assert read.tensors == whole.tensors
        assert {span.part for span in read.spans.values()} == {0, 1, 2}
    given, found = flags.parse(["-c", "512"]), devices.parse(WORKERS[:2])
    assert plan(header.read(parts[0]), given, found).weights == plan(whole, given, found).weights
    alone = parts[0].rename(tmp_path / "alone.gguf")
    with pytest.raises(InputError, match="20 tensors in its parts"):
        header.read(alone)
    with pytest.raises(InputError, match="a part of the split is missing: m-00001"):
        header.read(parts[1])


def test_truncated_part(tmp_path: Path) -> None:
    parts = _split(tmp_path)
    parts[2].write_bytes(parts[2].read_bytes()[:-5000])
    with pytest.raises(InputError, match="truncated"):
        header.read(parts[0])


def test_a_huge_file_is_read_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "huge.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 100)
    writer.add_token_list([f"token{n}" for n in range(150_000)])
    writer.add_token_merges([f"to ken{n}" for n in range(300_000)])
    writer.add_array("tokenizer.ggml.token_type", [1] * 150_000)
    size = 5 * 2**30
    for layer in range(100):
        shape = (size // 2**16, 2**15)
        writer.add_tensor_info(f"blk.{layer}.ffn_up.weight", shape, np.dtype(np.float16), size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + 32 + 100 * size)  # sparse: no block of it is written
    assert path.stat().st_size > 500 * 10**9
    began = time.monotonic()
    read = header.read(path)
    assert time.monotonic() - began < 3
    assert read.tensors["blk.99.ffn_up.weight"] == size


def test_missing_part(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"m-00002-of-00002\.gguf"):
        header.read(path)


@pytest.mark.parametrize("word", ["RPC0", "RPC0=host,1G", "RPC0=h:1,lots", "=h:1,1G", ""])
def test_wrong_device(word: str) -> None:
    with pytest.raises(InputError, match="is no device"):
        devices.parse([word])


def test_device_twice() -> None:
    with pytest.raises(InputError, match="twice"):
        devices.parse([WORKERS[0], WORKERS[0]])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-ts a", "no list of shares"),
        ("-ts -1,2", "no size"),
        ("-ot x", "is not PATTERN=BUFFER_TYPE"),
        ("-ot (=CPU", "no regular expression"),
        ("-ngl x", "no number of layers"),
        ("-np 0", "less than 1"),
        ("-c", "value is missing"),
        ("-ctk q9", "one of f32"),
        ("-sm row", "one of none, layer"),
        ("--tensor-splits 1,2", r"did you mean --tensor-split"),
        ("--what", "no such flag"),
        ("model.gguf", "is no flag"),
    ],
)
def test_wrong_flag(line: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        flags.parse(line.split())
    assert re.search(says, str(caught.value))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-ot exps=RPC9[x:1]", "no buffer type"),
        ("-dev RPC7", "no device RPC7"),
        ("-sm none -mg 5", "there are 2 devices"),
    ],
)
def test_flag_that_names_what_is_not_there(words: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        _scene("llama", 2, *words.split())


def test_slots_left_out_are_four_with_one_cache() -> None:
    given = flags.parse(["--ctx_size", "4096"])
    assert (given.slots, given.unified) == (4, True)
    one = flags.parse(["-np", "2"])
    assert (one.slots, one.unified) == (2, False)
    assert flags.FIT in given.said
    assert not flags.parse(["-fit", "off"]).said


def test_the_first_override_that_matches_counts() -> None:
    ot = ["-ot", "exps=RPC0[worker2:50052]"]
    first = _scene("qwen35moe", 2, "-ts", "9,0", *ot, "-cmoe").plan.experts
    last = _scene("qwen35moe", 2, "-ts", "9,0", "-cmoe", *ot).plan.experts
    assert set(first) == {"RPC1"}
    assert set(last) == {"CPU"}


# Of the cases "all-experts", "ncmoe6", "ncmoe4" and "ncmoe6-spread" of scenarios/placement.toml.
@pytest.mark.parametrize(
    ("words", "mib"),
    [
        ("-ts 3,3,3", (1.1, 1.1, 0.82)),
        ("-ts 3,3,3 --n-cpu-moe 6", (0.54, 0.53, 0.82)),
        ("-ts 3,3,3 --n-cpu-moe 4", (0.54, 0.91, 0.82)),
        ("-ts 7,1,1 --n-cpu-moe 6", (1.44, 0.36, 0.09)),
    ],
)
def test_weights_as_measured(words: str, mib: tuple[float, ...]) -> None:
    held = _scene("qwen35moe", 3, "-c", "2048", *words.split()).plan.per_device()
    found = [held[f"RPC{n}"]["weights"] / 2**20 for n in range(3)]
    assert found == pytest.approx(mib, abs=0.011)


# Each rule with a placement that raises it and one next to it that does not, as measured at b10705.
MOVED = r"blk\.[0-4]\..*=RPC0[worker1:50051],blk\.[5-7]\..*=RPC0[worker2:50052]"
OTHER = "=RPC0[worker2:50052]"
PAIRS: list[tuple[str, str, str, str]] = [
    # rule, model, what raises it, what does not
    ("ot-against-ts", "qwen35moe", f"-ts 5,3 -ot {MOVED}", f"-ts 1,1 -ot {MOVED}"),
    ("ot-against-ts", "qwen35moe", f"-ts 4,5 -ot {MOVED}", f"-ts 5,4 -ot exps{OTHER}"),
    (
        "ot-against-ts",
        "deepseek4",
        rf"-ts 1,6 -ot blk\.2\.ffn_down_exps{OTHER.replace('2', '1')}",
        rf"-ts 1,6 -ot blk\.5\.ffn_down_exps{OTHER.replace('2', '1')}",
    ),
    (
        "ot-against-ts",
        "deepseek4",
        r"-ts 1,6 -ot blk\.3\..*=CPU",
        r"-ts 1,6 -ot blk\.3\.attn.*=CPU",
    ),
    (
        "ot-against-ts",
        "llama",
        rf"-ts 3,4 -ot blk\.1\.attn_q{OTHER}",
        r"-ts 3,4 -ot blk\.1\..*=CPU",
    ),
    ("border-inside-indexer-group", "glm-dsa", "-ts 3,4", "-ts 2,5"),
    ("border-inside-indexer-group", "glm-dsa", "-ts 5,2", "-ts 6,1"),
    ("border-inside-indexer-group", "glm-dsa", "-ts 2,1,4", "-ts 1,1,5"),
    ("border-inside-indexer-group", "glm-dsa", "-ngl 5 -ts 2,3", "-ngl 4 -ts 2,2"),
    ("border-before-compressor", "deepseek4", "-ts 2,5", "-ts 1,6"),
    ("border-before-compressor", "deepseek4", "-ts 3,4", "-ts 3,4 -nkvo"),
    ("border-before-compressor", "deepseek4-front", "-ts 1,6", "-ts 2,5"),
    ("output-alone", "deepseek4", "-ts 6,1", "-ts 5,2"),
    ("output-alone", "deepseek4", "-ts 6,1 -nkvo", "-ts 1,6 -nkvo"),
    ("top-k-over-limit", "deepseek4", "-c 4352", "-c 4096"),
    ("top-k-over-limit", "glm-dsa", "-c 1280", "-c 1024"),
    ("over-memory", "llama", "-c 67108864", "-c 65536"),
    ("cache-type-refused", "llama", "-ctk q8_0", "-ctk f32"),
    ("cache-type-refused", "deepseek4", "-ctk f32", "-ctk f32 -ctv f32"),
    ("cache-type-refused", "qwen35moe", "-ctv q8_0 -fa off", "-ctv q8_0 -fa on"),
]


@pytest.mark.parametrize(("rule", "model", "bad", "good"), PAIRS)
def test_rule(rule: str, model: str, bad: str, good: str) -> None:
    for words, raised in ((bad, True), (good, False)):
        split = words.partition("-ts ")[2].partition(" ")[0]
        limit = ",topk=1024" if rule.startswith("top-k") else ""
        workers = [word + limit for word in WORKERS[: max(2, split.count(",") + 1)]]
        given = flags.parse(["-c", "512", *words.split()])
        found = Scene.of(_header(model), given, devices.parse(workers))
        assert (rule in _names(found)) == raised, words


def test_deepseek4_without_an_indexer_layer() -> None:
    spec = models.parse({"arch": "deepseek4", "ratios": [0, 0, 128, 0]}, "test")
    read = header.read(models.build(spec).path)
    found = Scene.of(read, flags.parse(["-c", "512"]), devices.parse(WORKERS[:1]))
    assert _names(found) == {"no-indexer-layer"}
    assert not _names(_scene("deepseek4", 1, "-c", "512"))


@pytest.mark.parametrize("model", ["glm-dsa", "deepseek4", "deepseek4-front", "qwen35moe"])
@pytest.mark.parametrize("workers", [2, 3])
def test_suggestions_raise_no_warning(model: str, workers: int) -> None:
    found = suggest(_scene(model, workers, "-c", "512"))
    assert found or (model, workers) == ("deepseek4", 3)
    for ts in found:
        assert not _names(_scene(model, workers, "-c", "512", "-ts", ts))


def test_suggestions_for_a_deep_model_take_no_time() -> None:
    small = _header("glm-dsa")
    layers = 78
    types = [int(n < 3 or (n - 2) % 4 == 0) for n in range(layers)]
    keys = small.keys | {
        "glm-dsa.block_count": layers,
        "glm-dsa.attention.indexer.types": types,
    }
    sizes = {f"blk.{n}.ffn_up.weight": 10**9 for n in range(layers)}
    workers = devices.parse([f"RPC{n}=h{n}:50052,120G" for n in range(5)])
    began = time.monotonic()
    found = suggest(Scene.of(replace(small, keys=keys, tensors=sizes), flags.parse([]), workers))
    assert time.monotonic() - began < 5
    assert len(found) == 5
    ends = list(accumulate(int(share) for share in found[0].split(",")))[:-1]
    assert all(types[end] for end in ends if end < layers)
    assert max(int(share) for share in found[0].split(",")) < 30


# A head's log, and plans that are not that head's: the comparison must see each.
LINE = "-t 1 -fit off -ngl 99 -ts 3,4 -c 4096 -np 3"
LOG = (Path(__file__).parent / "recorded" / "plan-deepseek4-np3.log").read_text().splitlines()


def _compared(line: str) -> list[str]:
    ends = [f"RPC{n}=127.0.0.1:{50051 + n},16G" for n in range(2)]
    scene = Scene.of(_header("deepseek4"), flags.parse(line.split()), devices.parse(ends))
    return differences(scene, Logged.read(LOG))


def test_no_difference_from_a_recorded_head() -> None:
    assert _compared(LINE) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("-ts 4,3", "layer 3: planned on RPC0, logged on RPC1"),
        ("-np 2", "caches: planned"),
        ("-c 8192", "caches: planned"),
        ("-ub 256", "caches: planned"),
        ("-ctk f32 -ctv f32", "kv on RPC0: planned"),
        ("-nkvo", "compressor on CPU: planned"),
        ("-cmoe", "weights on RPC1: planned"),
        ("-ctk f32", "refusal: planned"),
    ],
)
def test_a_wrong_plan_is_seen(wrong: str, says: str) -> None:
    assert any(line.startswith(says) for line in _compared(f"{LINE} {wrong}"))


def test_a_wrong_rule_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "PAD", 128)
    assert _compared(LINE)


def test_a_head_that_logs_nothing_is_a_difference() -> None:
    scene = _scene("llama", 2, "-c", "512")
    assert differences(scene, Logged.read(["it broke"])) == [
        "the head did not come as far as loading: it broke"
    ]


def test_unknown_architecture() -> None:
    small = _header("llama")
    keys = {key.replace("llama.", "rwkv9."): value for key, value in small.keys.items()}
    keys["general.architecture"] = "rwkv9"
    found = Scene.of(
        replace(small, keys=keys), flags.parse(["-c", "512"]), devices.parse(WORKERS[:2])
    )
    assert found.plan.caches is None
    assert found.plan.per_device()["RPC0"]["weights"] > 0


def _cli(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "lab", "plan", *words], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def test_a_pasted_command_line() -> None:
    path = str(models.build(models.STANDARD["deepseek4"]).path)
    line = (
        "llama-server -m other.gguf --rpc a:1,b:1 -ngl 99 -ts 1,6 -c 2048 -np 1 -fa on -t 8"
        " --no-warmup --host 0.0.0.0 --port 8080 -v --temp 0.6 --jinja -fit off --no-mmap"
    )
    workers = ["--device", "RPC0=a:1,1G", "--device", "RPC1=b:1,1G"]
    code, said = _cli(path, *workers, "--json", "--", *line.split())
    assert code == 0, said
    told = json.loads(said)
    assert told["warnings"] == []
    assert told["assumed"] == []
    assert told["borders"] == [{"before": 1, "bytes_per_token": 64 * 4 * 4}]
    code, said = _cli(path, *workers[:2], "--", *line.split())
    assert code == 2
    assert "--rpc: the head has a:1,b:1, --device names a:1" in said


RECORDED = Path(__file__).parent / "recorded" / "mini"


def test_a_recorded_head_put_as_much_on_each_worker() -> None:
    evidence = Evidence(RECORDED / "llama-2w-f1793c1c4")
    facts = evidence.read("case.json")
    model = header.read(models.build(models.STANDARD[facts["model"]["name"]]).path)
    names = [f"worker{i}:{50050 + i}" for i in (1, 2)]
    workers = devices.parse([f"RPC{i}={name},2G" for i, name in enumerate(names)])
    held = plan(model, flags.parse(facts["args"]), workers).per_device()
    logged = classify(evidence).facts["buffers"]
    for i, name in enumerate(names):
        for kind in ("weights", "kv"):
            expected = logged[kind][f"RPC0[{name}]"]
            assert held[f"RPC{i}"][kind] / 2**20 == pytest.approx(expected, abs=0.011)
