"""Scenario files: 28047 as the report has it, and every way to break one."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from lab import paths
from lab.case import Case, find, load_cases
from lab.errors import Exit, InputError

GOOD = """
report = "28047"
title = "two or more workers"
workload = { prompt = 48, predict = 16 }

[models.small]
arch = "glm-dsa"
layers = 4

[[case]]
pin = ["74ce15741", "f1793c1c4"]
model = ["glm-dsa", "small"]
workers = [2, 3]
why = "the report"
[case.expect]
outcome = "crash"
node = "head"
phase = "warmup"
signature = "create-node-invalid-data-ptr"
logged_by = "worker2"

[[case]]
pin = "1548a240e"
model = "llama"
workers = 1
link = { latency_ms = 20 }
expect = { outcome = "ok" }
"""


# --- what a good file means -----------------------------------------------------------------------


def test_a_matrix_expands_in_the_order_of_the_file(tmp_path: Path) -> None:
    assert [case.id for case in load_cases(_file(tmp_path, GOOD))] == [
        "28047[glm-dsa-2w-74ce15741]",
        "28047[glm-dsa-2w-f1793c1c4]",
        "28047[glm-dsa-3w-74ce15741]",
        "28047[glm-dsa-3w-f1793c1c4]",
        "28047[small-2w-74ce15741]",
        "28047[small-2w-f1793c1c4]",
        "28047[small-3w-74ce15741]",
        "28047[small-3w-f1793c1c4]",
        "28047[llama-1w-1548a240e]",
    ]


def test_a_case_has_what_its_row_and_its_file_say(tmp_path: Path) -> None:
    cases = {case.slug: case for case in load_cases(_file(tmp_path, GOOD))}
    small, llama = cases["small-2w-f1793c1c4"], cases["llama-1w-1548a240e"]
    assert small.model.params.layers == 4
    assert small.head.name == "f1793c1c4-cpu"
    assert (small.workload.prompt, small.workload.predict, small.workload.requests) == (48, 16, 1)
    assert small.why == "the report"
    assert (len(llama.workers), llama.link.latency_ms, llama.expect.outcome) == (1, 20, "ok")


@pytest.mark.parametrize(
    ("row", "case_id"),
    [
        ('variant = "offload-false"', "28047[llama-1w-1548a240e-offload-false]"),
        ('tag = "nkvo"', "28047[llama-1w-1548a240e-nkvo]"),
        ('variant = "offload-false"\ntag = "x"', "28047[llama-1w-1548a240e-offload-false-x]"),
        ('flavour = "cpu"', "28047[llama-1w-1548a240e]"),
        ('variant = ""', "28047[llama-1w-1548a240e]"),
    ],
)
def test_the_id_tells_what_is_not_the_default(tmp_path: Path, row: str, case_id: str) -> None:
    path = _file(tmp_path, GOOD.replace('model = "llama"', f'model = "llama"\n{row}'))
    assert load_cases(path)[-1].id == case_id


def test_arguments_of_the_row_follow_those_of_the_file(tmp_path: Path) -> None:
    text = GOOD.replace('report = "28047"', 'report = "28047"\nargs = ["-ngl", "99"]')
    text = text.replace('model = "llama"', 'model = "llama"\nargs = ["-ts", "2,5"]')
    assert load_cases(_file(tmp_path, text))[-1].args == ("-ngl", "99", "-ts", "2,5")


def test_a_report_number_finds_its_file() -> None:
    assert find("28047") == paths.SCENARIOS / "28047.toml"


# --- 28047 ----------------------------------------------------------------------------------------

AFFECTED = ("74ce15741", "f1793c1c4")
TABLE: list[tuple[str, str, str]] = [
    *(
        (f"{model}-1w-{pin}", "ok", "")
        for model in ("glm-dsa", "deepseek4")
        for pin in AFFECTED
    ),
    *(
        (f"{model}-{workers}w-{pin}", "crash", "")
        for model in ("glm-dsa", "deepseek4")
        for workers in (2, 3, 5)
        for pin in AFFECTED
        # Measured, not as the report says: see the file.
        if (model, workers, pin) != ("deepseek4", 3, "74ce15741")
    ),
    ("deepseek4-3w-74ce15741", "ok", ""),
    *(
        (f"{model}-{workers}w-{pin}", "ok", "")
        for model in ("llama", "gpt-oss", "glm-dsa-full")
        for workers in (2, 5)
        for pin in AFFECTED
    ),
    *(
        (f"{model}-{workers}w-1548a240e", "ok", "")
        for model in ("glm-dsa", "deepseek4", "llama", "gpt-oss", "glm-dsa-full")
        for workers in (1, 2, 3, 5)
    ),
    ("glm-dsa-5w-1548a240e-4slots", "ok", "-np 4"),
    ("deepseek4-2w-f1793c1c4-offload-false", "ok", ""),
    ("deepseek4-3w-f1793c1c4-offload-false", "ok", ""),
    ("glm-dsa-2w-f1793c1c4-offload-false", "crash", ""),
    *((f"deepseek4-front-{workers}w-f1793c1c4", "ok", "") for workers in (1, 2, 3)),
    ("deepseek4-2w-f1793c1c4-nkvo", "ok", "-nkvo"),
    ("deepseek4-3w-f1793c1c4-nkvo", "ok", "-nkvo"),
    ("glm-dsa-2w-f1793c1c4-nkvo", "crash", "-nkvo"),
    ("glm-dsa-2w-f1793c1c4-ts2-5", "ok", "-ts 2,5"),
    ("glm-dsa-3w-f1793c1c4-ts1-1-5", "ok", "-ts 1,1,5"),
    ("glm-dsa-2w-f1793c1c4-ts3-4", "crash", "-ts 3,4"),
    ("glm-dsa-2w-f1793c1c4-fa-off", "crash", "-fa off"),
    ("glm-dsa-2w-f1793c1c4-no-warmup", "crash", "--no-warmup"),
    ("glm-dsa-2w-f1793c1c4-20ms", "crash", ""),
    ("glm-dsa-2w-f1793c1c4-rdma", "crash", ""),
]  # fmt: skip


@pytest.fixture(scope="module")
def report() -> dict[str, Case]:
    return {case.slug: case for case in load_cases(find("28047")) if "vulkan" not in case.slug}


def test_28047_is_the_reporters_table(report: dict[str, Case]) -> None:
    assert {slug: case.expect.outcome for slug, case in report.items()} == {
        slug: outcome for slug, outcome, _ in TABLE
    }


def test_28047_has_65_cases_and_six_on_vulkan_and_none_twice() -> None:
    ids = Counter(case.id for case in load_cases(find("28047")))
    assert (len(TABLE), len(ids)) == (65, 71)
    assert set(ids.values()) == {1}


def test_28047_gives_each_row_its_arguments(report: dict[str, Case]) -> None:
    common = "-ngl 99 -c 2048 -t 1 -np 1 -fit off"
    for slug, _, args in TABLE:
        assert " ".join(report[slug].args) == f"{common} {args}".strip()


def test_28047_expects_every_crash_to_be_the_reports(report: dict[str, Case]) -> None:
    for case in report.values():
        if case.expect.outcome == "crash":
            crash = case.expect
            assert (crash.node, crash.phase, crash.logged_by) == ("head", "warmup", "worker")
            assert crash.signature == "create-node-invalid-data-ptr"


def test_28047_needs_hardware_for_rdma_only(report: dict[str, Case]) -> None:
    assert {slug: case.needs for slug, case in report.items() if case.needs} == {
        "glm-dsa-2w-f1793c1c4-rdma": ("rdma",)
    }
    (slow,) = report["glm-dsa-2w-f1793c1c4-20ms"].under
    assert (slow.kind, slow.on) == ("latency", "workers")
    slots = report["glm-dsa-5w-1548a240e-4slots"].workload
    assert (slots.requests, slots.together) == (4, True)


def test_every_scenario_of_the_project_loads() -> None:
    for path in paths.SCENARIOS.glob("*.toml"):
        assert load_cases(path)


# --- broken files ---------------------------------------------------------------------------------

CRASH = GOOD[GOOD.index("[case.expect]") : GOOD.rindex("[[case]]")]


def _crash(text: str) -> str:
    return f"[case.expect]\n{text}\n\n"


Broken = tuple[str, str, str, str]

UNKNOWN: list[Broken] = [
    (
        "workload = {",
        'titel = ""\nworkload = {',
        "titel",
        "(did you mean 'title'?); allowed: args, budget,",
    ),
    ('why = "the report"', 'wye = "x"', "case.0.wye", "(did you mean 'why'?); allowed: again,"),
    ("predict = 16", "predikt = 16", "workload.predikt", "(did you mean 'predict'?); allowed:"),
    ('node = "head"', 'nodes = "head"', "case.0.expect.nodes", "(did you mean 'node'?); allowed:"),
    ("{ latency_ms = 20 }", "{ latency = 20 }", "case.1.link.latency", "allowed: latency_ms"),
    (
        "[models.small]",
        "budget = { loading = 9 }\n[models.small]",
        "budget.loading",
        "decode, load",
    ),
    ('"1548a240e"', '"1548a240f"', "case.1.pin", "(did you mean '1548a240e'?); allowed: 049326a00"),
    ('"llama"', '"lama"', "case.1.model", "(did you mean 'llama'?); allowed: deepseek4"),
    ("create-node-invalid-data-ptr", "create-node", "case.0.expect.signature", "ggml-assert"),
    (
        "workers = 1\n",
        'workers = 1\nflavour = "cpuu"\n',
        "case.1.flavour",
        "mean 'cpu'?); allowed:",
    ),
    ("workers = 1\n", 'workers = 1\nvariant = "off"\n', "case.1.variant", "allowed: offload-false"),
    ("workers = 1\n", 'workers = 1\nflavour = "cpu+vulcan"\n', "case.1.flavour", "mean 'vulkan'?"),
    ("workers = 1\n", 'workers = 1\nhead = "vulcan"\n', "case.1.head", "mean 'vulkan'?"),
    ("workers = 1\n", 'workers = 1\ndraft = "lama"\n', "case.1.draft", "mean 'llama'?"),
    ('"ok" }', '"ok", buffers.rs.x = 1 }', "case.1.expect.buffers", "allowed: compressor, compute"),
    ("workers = 1\n", 'workers = 1\nneeds = ["rmda"]\n', "case.1.needs", "mean 'rdma'?); allowed:"),
    (
        'arch = "glm-dsa"',
        'arch = "glm-dsb"',
        "models.small",
        "mean 'glm-dsa'?); allowed: deepseek4",
    ),
    ("layers = 4", "layer = 4", "models.small: layer", "(did you mean 'layers'?); allowed:"),
    (
        'outcome = "ok"',
        'outcome = "okay"',
        "case.1.expect.outcome",
        "'ok', 'crash', 'hang', 'refused'",
    ),
    ('phase = "warmup"', 'phase = "warm"', "case.0.expect.phase", "'start', 'load', 'warmup',"),
]

MISSING: list[Broken] = [
    ('report = "28047"', "", "report", "required, but missing"),
    ('pin = "1548a240e"', "", "case.1.pin", "required, but missing"),
    ('expect = { outcome = "ok" }', "", "case.1.expect", "required, but missing"),
    ('outcome = "ok"', "", "case.1.expect.outcome", "required, but missing"),
    ('arch = "glm-dsa"\n', "", "models.small: arch", "required, but missing"),
    (GOOD, "", "report", "required, but missing"),
    ("workers = [2, 3]", "workers = []", "case.0.workers", "at least 1 item"),
    ('pin = "1548a240e"', "pin = []", "case.1.pin", "at least 1 item"),
    ("workers = 1\n", "workers = 1\nvariant = []\n", "case.1.variant", "at least 1 item"),
]

IMPOSSIBLE: list[Broken] = [
    ("workers = 1\n", "workers = 17\n", "case.1.workers.0", "less than or equal to 16, not 17"),
    ("workers = 1\n", "workers = -1\n", "case.1.workers.0", "greater than or equal to 0, not -1"),
    ("workers = 1\n", "workers = true\n", "case.1.workers.0", "valid integer, not True"),
    ("workers = 1\n", 'workers = "two"\n', "case.1.workers.0", "valid integer, not 'two'"),
    ("workers = 1\n", 'workers = "2"\n', "case.1.workers.0", "valid integer, not '2'"),
    ("prompt = 48", "prompt = 1", "workload.prompt", "greater than or equal to 2, not 1"),
    ("predict = 16", "predict = 1.5", "workload.predict", "valid integer, not 1.5"),
    ("latency_ms = 20", "latency_ms = -20", "case.1.link.latency_ms", "or equal to 0, not -20"),
    ('title = "two or more workers"', "title = 5", "title", "valid string, not 5"),
    ("workload = {", "args = '-ngl 99'\nworkload = {", "args", "valid list, not '-ngl 99'"),
    ('report = "28047"', 'report = "../28047"', "report", "should match pattern"),
    ('report = "28047"', "report = 28047", "report", "valid string, not 28047"),
    ("workers = 1\n", 'workers = 1\ntag = "A B"\n', "case.1.tag", "should match pattern"),
    ("workers = 1\n", "workers = 1\nenv = { a = '1' }\n", "case.1.env.a", "should match pattern"),
    ('"ok" }', '"ok", misplaced = [-1] }', "case.1.expect.misplaced.0", "or equal to 0, not -1"),
    ("layers = 4", "layers = 0", "models.small: layers", "greater than or equal to 1, not 0"),
    ("layers = 4", "indexer = [0, 1]", "models.small: indexer", "first layer"),
    ("[models.small]", '[models."a/b"]', "models.a/b", "should match pattern"),
    ('[models.small]\narch = "glm-dsa"', "models.small = 5\n[x]", "models.small", "valid dict"),
]

CONTRADICTIONS: list[Broken] = [
    (
        'signature = "create-node-invalid-data-ptr"\n',
        "",
        "case.0.expect",
        "a crash must also name: signature",
    ),
    (CRASH, _crash('outcome = "crash"'), "case.0.expect", "must also name: node, phase, signature"),
    ('"ok"', '"ok", phase = "load"', "case.1.expect", "an ok outcome has no node, phase"),
    ('"ok"', '"hang"', "case.1.expect", "a hang must also name: phase"),
    (
        'node = "head"',
        'node = "worker7"',
        "case.0.expect.node",
        "worker7 does not exist in a case with 2 worker(s)",
    ),
    ('"ok" }', '"ok" }\nargs = ["--port", "1"]', "case.1.args", "--port is set by the lab"),
    ('"ok" }', '"ok" }\nargs = ["-md", "x"]', "case.1.args", "-md is set by the lab: use `draft`"),
    (
        "workers = 1\n",
        'workers = 0\nflavour = "vulkan"\n',
        "case.1.flavour",
        "vulkan is more than 0 worker(s) can have",
    ),
    (
        "workers = 1\n",
        'workers = 1\nflavour = "cpu+vulkan"\n',
        "case.1.flavour",
        "cpu+vulkan is more than 1 worker(s) can have",
    ),
    ('node = "head"', 'node = "worker0"', "case.0.expect.node", "worker0 does not exist"),
    (
        '"worker2"',
        '"worker3"',
        "case.0.expect.logged_by",
        "worker3 does not exist in a case with 2",
    ),
    ("[2, 3]", "[0, 2]", "case.0.expect.logged_by", "does not exist in a case with 0 worker(s)"),
    ('node = "head"', 'node = "tail"', "case.0.expect.node", "should match pattern"),
    ("[2, 3]", "[2, 2]", "case.0", "two cases with the id 28047[glm-dsa-2w-74ce15741]"),
    (
        'pin = "1548a240e"\nmodel = "llama"\nworkers = 1\n',
        'pin = "f1793c1c4"\nmodel = "glm-dsa"\nworkers = 2\n',
        "case.1",
        'tell the rows apart with `tag = "..."`',
    ),
]

NO_TOML: list[Broken] = [
    ("[[case]]", "[[case]", "", "not valid TOML"),
    (GOOD, GOOD + GOOD, "", "not valid TOML"),
    (GOOD, "just some words", "", "not valid TOML"),
]


def test_workers_take_turns_and_the_head_has_its_own_flavour(tmp_path: Path) -> None:
    text = GOOD.replace(
        "workers = 1\n", 'workers = 3\nflavour = "cpu+vulkan"\nhead = "vulkan"\ntag = "t"\n'
    )
    case = load_cases(_file(tmp_path, text))[-1]
    assert case.id == "28047[llama-3w-1548a240e-cpu+vulkan-vulkan-head-t]"
    assert [spec.flavour for spec in case.workers] == ["cpu", "vulkan", "cpu"]
    assert {spec.name for spec in case.images} == {"1548a240e-cpu", "1548a240e-vulkan"}
    assert case.head.flavour == "vulkan"


@pytest.mark.parametrize(
    ("old", "new", "field", "message"),
    [
        pytest.param(*broken, id=f"{kind}-{number}-{broken[2] or 'file'}")
        for kind, table in {
            "unknown": UNKNOWN,
            "missing": MISSING,
            "impossible": IMPOSSIBLE,
            "contradiction": CONTRADICTIONS,
            "no-toml": NO_TOML,
        }.items()
        for number, broken in enumerate(table)
    ],
)
def test_a_broken_file_is_told_by_file_field_and_what_is_allowed(
    tmp_path: Path, old: str, new: str, field: str, message: str
) -> None:
    assert old in GOOD, "this edit of the good file changes nothing"
    path = _file(tmp_path, GOOD.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_cases(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: {field}")
    assert message in text
    assert "pydantic" not in text


def test_every_mistake_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace('title = "two', 'titel = "two').replace("workers = 1\n", "workers = -1\n")
    with pytest.raises(InputError) as caught:
        load_cases(_file(tmp_path, text))
    for field in ("title: required", "titel: unknown key", "case.1.workers.0: input should be"):
        assert field in str(caught.value)


def test_a_missing_file_is_told_with_those_that_are_there(tmp_path: Path) -> None:
    _file(tmp_path, GOOD)
    with pytest.raises(InputError, match=r"(?s)2804\.toml: no such file.*there are: 28047\.toml"):
        load_cases(tmp_path / "2804.toml")


@pytest.mark.parametrize("content", [b"title = '\xff\xfe'", "title = 'x'".encode("utf-16")])
def test_a_file_that_is_not_utf8_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "28047.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"28047\.toml: cannot be read: .*utf-8"):
        load_cases(path)


def test_a_folder_is_no_scenario(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_cases(tmp_path)


def test_an_unknown_report_number_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown scenario '28048' \(did you mean '28047'\?\)"):
        find("28048")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"llama"', '"lama"', "case.1.model: unknown model 'lama' (did you mean 'llama'?)"),
        ("[[case]]", "[[case]", "not valid TOML"),
    ],
)
def test_the_command_line_says_the_same_and_shows_no_traceback(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = _file(tmp_path, GOOD.replace(old, new))
    done = subprocess.run(
        [sys.executable, "-m", "lab", "list", str(path)],
        capture_output=True,
        text=True,
        env=os.environ | {"DOCKER_HOST": "unix:///nonexistent", "COLUMNS": "1000"},
        check=False,
    )
    assert done.returncode == Exit.INPUT
    assert message in done.stderr
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def _file(folder: Path, text: str) -> Path:
    path = folder / "28047.toml"
    path.write_text(text, encoding="utf-8")
    return path
