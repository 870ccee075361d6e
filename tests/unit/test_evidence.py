"""The evidence directory: never overwritten, read though it is cut short."""

import re
from pathlib import Path

import pytest

from lab.errors import InputError
from lab.evidence import Evidence, case_dirs, new_run


def test_two_runs_in_one_second_get_two_directories(tmp_path: Path) -> None:
    runs = [new_run(tmp_path, "28047") for _ in range(5)]
    assert len(set(runs)) == 5
    assert all(path.is_dir() for path in runs)
    assert re.fullmatch(r"\d{8}T\d{6}Z-28047", runs[0].name)


def test_a_repeated_case_gets_a_directory_of_its_own(tmp_path: Path) -> None:
    first = Evidence.create(tmp_path, "glm-dsa-2w")
    first.write("case.json", {"id": 1})
    again = [Evidence.create(tmp_path, "glm-dsa-2w").path.name for _ in range(2)]
    assert again == ["glm-dsa-2w.2", "glm-dsa-2w.3"]
    assert first.read("case.json") == {"id": 1}


def test_the_timeline_is_read_as_it_was_written(tmp_path: Path) -> None:
    evidence = Evidence.create(tmp_path, "case")
    evidence.event("begin")
    evidence.event("exit", node="head", code=134, reason="ended\nwith two lines\u2028and more")
    begin, end = evidence.events()
    assert begin["event"] == "begin"
    assert (end["node"], end["code"]) == ("head", 134)
    assert end["reason"].endswith("lines\u2028and more")
    assert 0 <= end["t"] - begin["t"] < 5


@pytest.mark.parametrize("partial", ["{", '{"t": 2.0, "event": "ex', '{"t": 2.0, "event": "exit"'])
def test_a_partial_last_event_is_left_out(tmp_path: Path, partial: str) -> None:
    evidence = Evidence.create(tmp_path, "case")
    evidence.write_text("events.jsonl", '{"t": 1.0, "event": "begin"}\n' + partial)
    assert evidence.events() == [{"t": 1.0, "event": "begin"}]


def test_a_case_that_did_not_begin_has_no_events_and_no_log(tmp_path: Path) -> None:
    evidence = Evidence.create(tmp_path, "case")
    assert evidence.events() == []
    assert evidence.log("head") == []
    assert evidence.nodes() == []
    assert evidence.read("nodes.json", {}) == {}


def test_log_lines_have_the_engines_time(tmp_path: Path) -> None:
    evidence = Evidence.create(tmp_path, "case")
    evidence.write_text(
        "logs/head.log",
        "2026-12-01T04:54:39.442675469Z Remote RPC server crashed\n"
        "2026-12-01T04:54:40Z   no fraction\n"
        "2026-12-01T04:54:41.5Z \n",
    )
    log = evidence.log("head")
    assert [text for _, text in log] == ["Remote RPC server crashed", "  no fraction", ""]
    assert [at for at, _ in log] == pytest.approx(
        [1796100879.442675469, 1796100880, 1796100881.5], abs=1e-6
    )


def test_a_line_without_a_time_is_whole_and_has_that_of_the_one_before(tmp_path: Path) -> None:
    evidence = Evidence.create(tmp_path, "case")
    evidence.log_path("head").write_bytes(
        b"early words\n2026-12-01T04:54:40Z loading 1%\rloading 2%\nterminate called \xff\n"
    )
    assert evidence.log("head") == [
        (0.0, "early words"),
        (1796100880.0, "loading 1%"),
        (1796100880.0, "loading 2%"),
        (1796100880.0, "terminate called \ufffd"),
    ]


def test_nodes_are_head_first_and_without_the_proxy(tmp_path: Path) -> None:
    evidence = Evidence.create(tmp_path, "case")
    for node in ("worker2", "toxiproxy", "head", "worker1"):
        evidence.write_text(f"logs/{node}.log", "")
    assert evidence.nodes() == ["head", "worker1", "worker2"]


def test_half_a_json_file_is_told_by_its_name(tmp_path: Path) -> None:
    evidence = Evidence.create(tmp_path, "case")
    evidence.write_text("nodes.json", '{"head": {"run')
    with pytest.raises(InputError, match=r"nodes\.json: not valid JSON"):
        evidence.read("nodes.json", {})


def test_writing_leaves_no_partial_file(tmp_path: Path) -> None:
    evidence = Evidence.create(tmp_path, "case")
    evidence.write("inspect/head.json", {"State": {}})
    evidence.write("inspect/head.json", {"State": {"Pid": 1}})
    assert [path.name for path in (evidence.path / "inspect").iterdir()] == ["head.json"]
    assert evidence.read("inspect/head.json") == {"State": {"Pid": 1}}


def test_a_run_is_its_cases_and_a_case_is_itself(tmp_path: Path) -> None:
    for name in ("b", "a", "references/5c0c", "models"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("b", "a", "references/5c0c"):
        (tmp_path / name / "case.json").write_text("{}", encoding="utf-8")
    assert [path.name for path in case_dirs(tmp_path)] == ["a", "b"]
    assert list(case_dirs(tmp_path / "a")) == [tmp_path / "a"]
    assert list(case_dirs(tmp_path / "models")) == []
