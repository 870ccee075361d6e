"""The doors: help, exit codes, and judging with no engine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from fake_evidence import RECORDED, crashed, made

from lab import __version__
from lab.cli import VERBS, app, main
from lab.errors import Exit
from lab.evidence import Evidence

NO_ENGINE = "unix:///nonexistent"
CRASH_CASE, OK_CASE = "glm-dsa-2w-f1793c1c4", "llama-2w-f1793c1c4"


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Lab:
    """`rpclab` in this process, with no engine to be found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        monkeypatch.setenv("DOCKER_HOST", NO_ENGINE)
        monkeypatch.setenv("COLUMNS", "300")

    def __call__(self, *args: object) -> Done:
        self._monkeypatch.setattr(sys, "argv", ["rpclab", *map(str, args)])
        # A process that calls `main` again has the verbs already.
        self._monkeypatch.setattr(app, "registered_commands", [])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = self._capsys.readouterr()
        return Done(int(caught.value.code or 0), out, err)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lab:
    return Lab(monkeypatch, capsys)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run that may be written to."""
    return Path(shutil.copytree(RECORDED, tmp_path / "run"))


# --- help and wrong input -------------------------------------------------------------------------


def test_help_names_every_verb_and_exit_code(lab: Lab) -> None:
    done = lab("--help")
    assert done.code == Exit.OK
    for word in (*VERBS, "2 wrong input", "3 no container engine"):
        assert word in done.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(lab: Lab, verb: str) -> None:
    done = lab(verb, "--help")
    assert done.code == Exit.OK
    assert f"rpclab {verb}" in done.out


def test_the_version_is_the_packages(lab: Lab) -> None:
    assert lab("--version").out.strip() == __version__


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("list", "28048"), "unknown scenario '28048' (did you mean '28047'?)"),
        (("run", "28048"), "unknown scenario '28048' (did you mean '28047'?)"),
        (("list", "nowhere/28047.toml"), "nowhere/28047.toml: no such file"),
        (("run",), "no scenario named"),
        (("run", "28047", "--source", "ftp"), "unknown source 'ftp'; allowed: git, sdist"),
        (("judge", "nowhere"), "nowhere: no case in it"),
        (("judge",), "Missing argument"),
        (("jugde", "x"), "No such command 'jugde'"),
        (("list", "--al"), "No such option"),
    ],
)
def test_wrong_input_ends_with_2_and_what_is_wrong(
    lab: Lab, args: tuple[str, ...], message: str
) -> None:
    done = lab(*args)
    assert done.code == Exit.INPUT
    assert message in done.err
    assert "Traceback" not in done.err


def test_running_without_an_engine_ends_with_3(lab: Lab) -> None:
    done = lab("run", "28047")
    assert done.code == Exit.NO_ENGINE
    assert "no container engine answers" in done.err
    assert "next: " in done.err


def test_an_error_of_the_console_script_is_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lab", "judge", str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"DOCKER_HOST": NO_ENGINE, "COLUMNS": "1000"},
        check=False,
    )
    assert done.returncode == Exit.INPUT
    assert done.stderr == (
        f"rpclab: {tmp_path}: no case in it (no case.json)\n  next: name runs/<run>\n"
    )


# --- list -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-n", "zero"], "-n: not a number of cases: 'zero'; allowed: auto, 1, 2, ..."),
        (["-n", "-3"], "-n: not a number of cases"),
        (["-k", "no-such-case"], "-k: no case matches 'no-such-case'"),
        (["-k", "((("], "-k: not an expression of pytest's -k"),
        (["--source", "svn"], "--source: unknown source 'svn'"),
    ],
)
def test_a_wrong_argument_of_run_ends_before_anything_starts(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], message: str
) -> None:
    monkeypatch.setenv("RPCLAB_RUNS", str(tmp_path / "runs"))
    done = lab("run", "28047", *args)
    assert (done.code, message in done.err) == (Exit.INPUT, True), done.err
    assert not (tmp_path / "runs").exists()


def test_list_names_the_scenarios_or_their_cases(lab: Lab) -> None:
    assert "28047" in lab("list").out
    out = lab("list", "28047").out.splitlines()
    assert "28047[glm-dsa-1w-f1793c1c4]  ok" in out
    assert "28047[glm-dsa-2w-f1793c1c4-rdma]  crash  (needs rdma)" in out


# --- judge ----------------------------------------------------------------------------------------


def test_judging_a_finished_run_needs_no_engine(lab: Lab, run: Path) -> None:
    done = lab("judge", run)
    assert done.code == Exit.OK
    assert "2 pass, 0 fail, 0 skip, 0 error" in done.out
    assert f"mini[{CRASH_CASE}]" in done.out
    assert "changed" not in done.out


def test_a_case_can_be_judged_alone(lab: Lab, run: Path) -> None:
    assert "1 pass, 0 fail" in lab("judge", run / OK_CASE).out


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("case.json", b"[]", Exit.INPUT),
        ("nodes.json", b"[]", Exit.INPUT),
        ("nodes.json", b"[1]", Exit.INPUT),
        ("events.jsonl", b"\xff\xfe", Exit.INPUT),
        ("answers.json", b"[{}]", Exit.INPUT),
        ("logs/head.log", b"\x00\xff" * 99, Exit.ERROR),
        ("logs/head.log", None, Exit.ERROR),
    ],
)
def test_damaged_evidence_is_never_a_verdict_on_llama_cpp(
    lab: Lab, run: Path, name: str, content: bytes | None, code: Exit
) -> None:
    file = run / OK_CASE / name
    file.unlink() if content is None else file.write_bytes(content)
    done = lab("judge", run / OK_CASE)
    assert done.code == code
    assert "Traceback" not in done.err


def test_judging_says_which_verdicts_changed_and_writes_nothing(lab: Lab, run: Path) -> None:
    _rewrite(run, OK_CASE, "fail")
    before = _files(run)
    done = lab("judge", run)
    assert done.code == Exit.OK
    assert f"changed: {OK_CASE}: fail -> pass" in done.out
    assert "2 pass, 0 fail" in done.out
    assert _files(run) == before


def test_judging_can_write_and_keeps_what_was_there(lab: Lab, run: Path) -> None:
    _rewrite(run, OK_CASE, "fail")
    assert lab("judge", "--write", run).code == Exit.OK
    case = Evidence(run / OK_CASE)
    assert case.read("verdict.1.json")["verdict"] == "fail"
    assert case.read("verdict.json")["verdict"] == "pass"
    assert case.read("outcome.1.json")["outcome"] == case.read("outcome.json")["outcome"]
    assert "changed" not in lab("judge", run).out


@pytest.mark.parametrize(
    ("changes", "code", "tally"),
    [
        ({}, Exit.FAIL, "1 pass, 1 fail, 0 skip, 0 error"),
        ({"expect": {"outcome": "crash"} | {"node": "head", "phase": "warmup"}}, Exit.INPUT, ""),
        ({"skip": "needs a host labelled rdma"}, Exit.OK, "1 pass, 0 fail, 1 skip, 0 error"),
    ],
)
def test_the_exit_code_is_that_of_the_verdicts(
    lab: Lab, tmp_path: Path, changes: dict[str, object], code: Exit, tally: str
) -> None:
    made(tmp_path / "good")
    crashed(tmp_path / "wrong", case=changes)
    done = lab("judge", tmp_path)
    assert done.code == code
    assert tally in done.out


def test_a_case_cut_short_is_an_error_not_a_failure(lab: Lab, tmp_path: Path) -> None:
    crashed(tmp_path / "wrong")
    (made(tmp_path / "cut").path / "nodes.json").unlink()
    done = lab("judge", tmp_path)
    assert done.code == Exit.ERROR
    assert "0 pass, 1 fail, 0 skip, 1 error" in done.out
    assert "stopped in mid-case" in done.out


def _rewrite(run: Path, case: str, word: str) -> None:
    evidence = Evidence(run / case)
    evidence.write("verdict.json", evidence.read("verdict.json") | {"verdict": word})


def _files(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
