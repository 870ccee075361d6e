"""`rpclab run`: run scenarios."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import pytest
import typer
from rich.console import Console

from lab import engine, evidence, images, paths, report, terminal
from lab.errors import Exit, InputError, LabError
from lab.plugin import CaseItem, at_once
from lab.report import COLOURS
from lab.scenario import Case, find, load_cases

# The lab prints for itself; and pytest cannot rewrite the assertions of a package that runs it.
QUIET = (
    "-p",
    "no:terminal",
    "-p",
    "no:cacheprovider",
    "-o",
    "addopts=",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
)


def command(
    scenarios: Annotated[
        list[str] | None, typer.Argument(help="Report numbers (`28047`) or scenario files.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every scenario there is.")] = False,
    only: Annotated[
        str, typer.Option("-k", help="Only cases that match, as in pytest: `glm-dsa and not 5w`.")
    ] = "",
    parallel: Annotated[
        str, typer.Option("-n", help="Cases at once; `auto` knows cores and memory.")
    ] = "auto",
    source: Annotated[
        str | None, typer.Option(help="Where llama.cpp comes from: `git` or `sdist`.")
    ] = None,
    keep: Annotated[
        bool, typer.Option(help="Leave each topology up to look into; `rpclab clean --kept`.")
    ] = False,
    junitxml: Annotated[Path | None, typer.Option(help="Write a JUnit report.")] = None,
) -> None:
    """Run scenarios and print a verdict for each case.

    Builds the images and models it needs first. Evidence goes to `runs/<time>-<scenario>/`.

    Examples: `rpclab run 28047`, `rpclab run 28047 -k 'glm-dsa and 2w'`, `rpclab run --all -n 4`
    """
    began = time.monotonic()
    files = list(dict.fromkeys(find(name) for name in scenarios or []))
    if every:
        files += [file for file in sorted(paths.SCENARIOS.glob("*.toml")) if file not in files]
    if not files:
        raise InputError(
            "no scenario named", hint="`rpclab run 28047`, or `--all`; see rpclab list"
        )
    if source not in (None, "git", "sdist"):
        raise InputError(f"unknown source {source!r}; allowed: git, sdist", where="--source")
    if parallel != "auto" and not parallel.isdigit():
        raise InputError(
            f"not a number of cases: {parallel!r}; allowed: auto, 1, 2, ...", where="-n"
        )
    for file in files:
        load_cases(file)  # a wrong file ends here, with nothing started
    cases = _selected(files, only)
    engine.client().close()
    _prepare(cases, source)

    run = evidence.new_run(paths.runs(), "-".join(file.stem for file in files))
    side_by_side = min(len(cases), at_once() if parallel == "auto" else int(parallel))
    # One at a time needs no processes beside this one.
    options = ["-n", str(side_by_side if side_by_side > 1 else 0), "--rpclab-run", str(run), *QUIET]
    options += ["-k", only] if only else []
    options += ["--rpclab-keep"] if keep else []
    options += ["--rpclab-source", source] if source else []
    options += [f"--junitxml={junitxml}"] if junitxml else []
    out = terminal.out()
    code = pytest.main([*map(str, files), *options], plugins=[_Live(out, len(cases))])
    report.print_run(run, out)
    out.print(f"all in all, images and references included: {time.monotonic() - began:.0f} s")
    raise typer.Exit(_exit_code(run, int(code)))


class _Live:
    """Prints each verdict as it comes, in place of pytest's own terminal."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total, self._count = console, total, 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One line for a verdict; anything else that fails is told in full."""
        facts = dict(report.user_properties)
        if report.when == "call" and "verdict" in facts:
            self._count += 1
            where = f"{self._count:{len(str(self._total))}}/{self._total}"
            case = report.nodeid.partition("::")[2]
            self._console.print(
                f"{where} {facts['verdict']:5} {case}  {facts['reason']}",
                style=COLOURS[str(facts["verdict"])],
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        elif report.failed:
            self._console.print(report.longreprtext, markup=False)


class _Selection:
    """Asks pytest which cases `-k` chooses."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The items are those that are left after the deselection."""
        self.cases = [item.case for item in session.items if isinstance(item, CaseItem)]


def _selected(files: list[Path], only: str) -> list[Case]:
    selection = _Selection()
    options = ["--collect-only", *QUIET, *(["-k", only] if only else [])]
    code = pytest.main([*map(str, files), *options], plugins=[selection])
    if code == pytest.ExitCode.USAGE_ERROR:
        raise InputError(f"not an expression of pytest's -k: {only!r}", where="-k")
    if not selection.cases:
        raise InputError(f"no case matches {only!r}", where="-k", hint="`rpclab list REPORT`")
    return selection.cases


def _prepare(cases: list[Case], source: str | None) -> None:
    """Images first, one build at a time: cases run side by side and must not wait for a build."""
    console = terminal.err()
    specs = {case.image for case in cases if not case.needs}
    for spec in sorted(specs, key=lambda spec: spec.name):
        with console.status(f"image {spec.name}"):
            images.ensure(spec, source=source)
    with console.status("image toxiproxy"):
        images.ensure_toxiproxy()


def _exit_code(run: Path, pytest_code: int) -> Exit:
    """From the verdicts; where pytest itself did not get through, from pytest."""
    verdicts = Counter(row.verdict for row in report.rows(run))
    if pytest_code == pytest.ExitCode.INTERRUPTED:
        return Exit.INTERRUPTED
    if verdicts["error"] or pytest_code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return Exit.ERROR
    if verdicts["fail"]:
        return Exit.FAIL
    if pytest_code != pytest.ExitCode.OK:
        raise LabError("pytest failed with no failing verdict", where=str(run))
    return Exit.OK
