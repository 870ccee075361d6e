"""The pytest plugin: collects `scenarios/*.toml`, one test for each case.

`pytest scenarios/28047.toml`, `-k`, `-n`, `--junitxml`, `--lf` work as everyone expects.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab import evidence, paths
from lab.case import Case, load_cases
from lab.errors import LabError
from lab.owner import die_with_parent
from lab.runner import Runner

CASE_MEMORY = 1 << 30
"""Bytes of memory that a case of tiny models may need: five workers, a head and the lab."""
CASES_PER_CORE = 2
"""A case waits for the engine half of its time (`make bench`)."""

_runner = pytest.StashKey[Runner]()


class CaseFailed(Exception):
    """A case's verdict is `fail` or `error`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The lab's own options."""
    group = parser.getgroup("rpclab", "llama.cpp RPC lab")
    group.addoption("--rpclab-run", help="evidence directory of this run (default: a new one)")
    group.addoption("--rpclab-keep", action="store_true", help="leave each case's topology up")
    group.addoption("--rpclab-source", choices=("git", "sdist"), help="where llama.cpp comes from")


def pytest_configure(config: pytest.Config) -> None:
    """A pytest-xdist worker must not outlive the process that started it."""
    if hasattr(config, "workerinput"):
        die_with_parent(os.getppid())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All of pytest-xdist's workers write to one run."""
    option = node.config.option
    if not option.rpclab_run:
        name = _run_name([Path(arg.partition("::")[0]) for arg in node.config.args])
        option.rpclab_run = str(evidence.new_run(paths.runs(), name)) if name else None
    node.workerinput["rpclab_run"] = option.rpclab_run


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: as many cases at once as cores and memory allow."""
    return at_once()


def at_once() -> int:
    """How many cases this machine may run side by side."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    by_memory = psutil.virtual_memory().available // CASE_MEMORY
    return int(max(1, min((cores or 1) * CASES_PER_CORE, by_memory)))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A TOML file in a folder of scenarios, or one that was named."""
    named = {Path(arg.partition("::")[0]).resolve() for arg in parent.config.args}
    wanted = file_path.parent.name == "scenarios" or file_path.resolve() in named
    if file_path.suffix == ".toml" and file_path.name != "pyproject.toml" and wanted:
        return ScenarioFile.from_parent(parent, path=file_path)
    return None


class ScenarioFile(pytest.File):
    """A scenario file; a wrong one is a collection error with file and field path."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item for each case."""
        for case in load_cases(self.path):
            yield CaseItem.from_parent(self, name=case.id, case=case)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any) -> Any:
        """The lab's errors speak for themselves."""
        if isinstance(excinfo.value, LabError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, *args)


class CaseItem(pytest.Item):
    """One case."""

    def __init__(self, *, case: Case, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case

    def runtest(self) -> None:
        """Run the case; anything but `pass` is a skip or a failure."""
        verdict, path = _runner_of(self.config).run_case(self.case)
        self.user_properties += [("verdict", verdict.verdict), ("reason", verdict.reason)]
        if verdict.verdict == "skip":
            pytest.skip(verdict.reason)
        if verdict.verdict != "pass":
            lines = [verdict.reason, f"log: {verdict.line or '(no log line)'}", f"evidence: {path}"]
            raise CaseFailed("\n".join(lines))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any) -> Any:
        """Three lines: what was expected and came, the log line that matters, where the rest is."""
        if isinstance(excinfo.value, CaseFailed | LabError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, *args)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the case comes from."""
        return self.path, None, self.name


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """With `-v`, the verdict and its reason in place of PASSED."""
    facts = dict(report.user_properties) if hasattr(report, "user_properties") else {}
    if report.when != "call" or "verdict" not in facts:
        return None
    letter = {"passed": ".", "failed": "F", "skipped": "s"}[report.outcome]
    return report.outcome, letter, f"{facts['verdict']}: {facts['reason']}"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Nothing is left behind, however the session ended."""
    if (runner := config.stash.get(_runner, None)) is not None:
        runner.close()


def _runner_of(config: pytest.Config) -> Runner:
    """This process's runner, made for the first case."""
    if (runner := config.stash.get(_runner, None)) is None:
        given = getattr(config, "workerinput", {}).get("rpclab_run") or config.option.rpclab_run
        name = _run_name([Path(arg.partition("::")[0]) for arg in config.args]) or "cases"
        run = Path(given) if given else evidence.new_run(paths.runs(), name)
        runner = Runner(run, keep=config.option.rpclab_keep, source=config.option.rpclab_source)
        config.stash[_runner] = runner
    return runner


def _run_name(args: list[Path]) -> str:
    """What a run is called after: its scenarios."""
    return "-".join(dict.fromkeys(path.stem for path in args if path.suffix == ".toml"))
