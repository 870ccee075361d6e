"""`rpclab plan`: wrong input, and the placement of recorded heads."""

from pathlib import Path

import pytest

from lab import models
from lab.errors import InputError
from lab.evidence import Evidence
from lab.outcome import classify
from lab.plan import devices, flags, header
from lab.plan.place import plan
from lab.plan.suggest import suggest
from lab.plan.warnings import Scene, warnings

WORKERS = [f"RPC{n}=worker{n + 1}:{50051 + n},16G" for n in range(3)]


def _scene(name: str, workers: int, *words: str) -> Scene:
    head = header.read(models.build(models.STANDARD[name]).path)
    given, found = flags.parse(list(words)), devices.parse(WORKERS[:workers])
    return Scene(head, given, found, plan(head, given, found))


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


@pytest.mark.parametrize("words", [["-ts", "a"], ["-ot", "x"], ["-ngl", "x"], ["--what"]])
def test_wrong_flag(words: list[str]) -> None:
    with pytest.raises(InputError):
        flags.parse(words)


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


# Of 28047 at f1793c1c4: which borders crash and which answer.
@pytest.mark.parametrize(
    ("ts", "warned"),
    [
        ("1,6", False),
        ("2,5", False),
        ("6,1", False),
        ("3,4", True),
        ("4,3", True),
        ("5,2", True),
        ("1,1,5", False),
        ("2,1,4", True),
    ],
)
def test_indexer_borders(ts: str, warned: bool) -> None:
    scene = _scene("glm-dsa", ts.count(",") + 1, "-c", "512", "-ts", ts)
    assert ("border-inside-indexer-group" in _names(scene)) == warned


@pytest.mark.parametrize(("ts", "warned"), [("1,1", False), ("5,3", True), ("4,5", True)], ids=str)
def test_override_against_split(ts: str, warned: bool) -> None:
    ot = r"blk\.[0-4]\..*=RPC0[worker1:50051],blk\.[5-7]\..*=RPC0[worker2:50052]"
    scene = _scene("qwen35moe", 2, "-c", "2048", "-ts", ts, "-ot", ot)
    assert ("ot-against-ts" in _names(scene)) == warned


@pytest.mark.parametrize(("context", "warned"), [("4096", False), ("4352", True)])
def test_top_k_over_limit(context: str, warned: bool) -> None:
    head = header.read(models.build(models.STANDARD["deepseek4"]).path)
    found = devices.parse([WORKERS[0] + ",topk=1024"])
    given = flags.parse(["-c", context])
    names = _names(Scene(head, given, found, plan(head, given, found)))
    assert ("top-k-over-limit" in names) == warned


def test_over_memory() -> None:
    head = header.read(models.build(models.STANDARD["llama"]).path)
    given, found = flags.parse(["-c", "65536"]), devices.parse(["RPC0=a:1,1M"])
    assert "over-memory" in _names(Scene(head, given, found, plan(head, given, found)))


def test_suggestions_raise_no_warning() -> None:
    found = suggest(_scene("glm-dsa", 3, "-c", "512"))
    assert found
    for ts in found:
        assert not _names(_scene("glm-dsa", 3, "-c", "512", "-ts", ts))


def test_nothing_is_suggested_where_the_rule_does_not_explain_all() -> None:
    assert suggest(_scene("deepseek4", 2, "-c", "512")) == []


RECORDED = Path(__file__).parent / "recorded" / "mini"


def test_a_recorded_head_put_as_much_on_each_worker() -> None:
    evidence = Evidence(RECORDED / "llama-2w-f1793c1c4")
    facts = evidence.read("case.json")
    model = header.read(models.build(models.STANDARD[facts["model"]["name"]]).path)
    args = " ".join(facts["args"]).replace("-t 1", "").replace("-fit off", "").split()
    names = [f"worker{i}:{50050 + i}" for i in (1, 2)]
    workers = devices.parse([f"RPC{i}={name},2G" for i, name in enumerate(names)])
    held = plan(model, flags.parse(args), workers).per_device()
    logged = classify(evidence).facts["buffers"]
    for i, name in enumerate(names):
        for kind in ("weights", "kv"):
            expected = logged[kind][f"RPC0[{name}]"]
            assert held[f"RPC{i}"][kind] / 2**20 == pytest.approx(expected, abs=0.011)
