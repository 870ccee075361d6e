"""One run: pytest chooses and runs the cases; the lab prepares, prints and counts."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from lab import engine, evidence, images, paths, report, terminal
from lab.case import Case, load_cases
from lab.errors import Exit, InputError, LabError
from lab.grid import grids
from lab.oracle import reference_case
from lab.plugin import CaseItem, at_once
from lab.report import COLOURS

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


@dataclass(frozen=True)
class Session:
    """What is to be run, and how."""

    files: list[Path]
    """Scenario files."""
    only: str = ""
    """Which of their cases, as pytest's `-k` takes it; empty: all."""
    parallel: int | None = None
    """Cases at once; None: as many as cores and memory allow."""
    source: str | None = None
    """Where llama.cpp comes from: `git` or `sdist`; None: what can be reached."""
    keep: bool = False
    """Leave each topology up."""
    junitxml: Path | None = None

    def run(self) -> Exit:
        """Run the cases and print verdict after verdict, then the report.

        Raises:
            InputError: a wrong file or `only`; nothing was started.
            LabError: an image could not be had, or pytest itself failed.
        """
        began = time.monotonic()
        cases = self.cases()
        engine.client().close()  # no engine: said before anything is made
        self._prepare(cases)
        run = evidence.new_run(paths.runs(), "-".join(file.stem for file in self.files))
        out = terminal.out()
        code = pytest.main(self._options(run, len(cases)), plugins=[Live(out, len(cases))])
        report.print_run(run, out)
        if found := grids(run):
            text = "\n".join(grid.markdown() for grid in found)
            (run / "grid.md").write_text(text, encoding="utf-8")
        out.print(f"all in all, images and references included: {time.monotonic() - began:.0f} s")
        return _exit_code(run, int(code))

    def cases(self) -> list[Case]:
        """The cases that `only` leaves."""
        for file in self.files:
            load_cases(file)  # a wrong file ends here
        selection = _Selection()
        options = ["--collect-only", *QUIET, *self._only()]
        code = pytest.main([*map(str, self.files), *options], plugins=[selection])
        if code == pytest.ExitCode.USAGE_ERROR:
            raise InputError(f"not an expression of pytest's -k: {self.only!r}", where="-k")
        if not selection.cases:
            raise InputError(
                f"no case matches {self.only!r}", where="-k", hint="`rpclab list REPORT`"
            )
        return selection.cases

    def _prepare(self, cases: list[Case]) -> None:
        """Images first, one build at a time: no case of many side by side waits for a build."""
        console = terminal.err()
        specs = {spec for case in cases if not case.needs for spec in case.images}
        specs |= {reference_case(case).head for case in cases if not case.needs}
        for spec in sorted(specs, key=lambda spec: spec.name):
            with console.status(f"image {spec.name}"):
                images.ensure(spec, source=self.source)
        with console.status("image toxiproxy"):
            images.ensure_toxiproxy()

    def _options(self, run: Path, cases: int) -> list[str]:
        side_by_side = min(cases, self.parallel if self.parallel is not None else at_once())
        # One at a time needs no processes beside this one.
        options = ["-n", str(side_by_side if side_by_side > 1 else 0), "--rpclab-run", str(run)]
        options += self._only()
        options += ["--rpclab-keep"] if self.keep else []
        options += ["--rpclab-source", self.source] if self.source else []
        options += [f"--junitxml={self.junitxml}"] if self.junitxml else []
        return [*map(str, self.files), *options, *QUIET]

    def _only(self) -> list[str]:
        return ["-k", self.only] if self.only else []


class Live:
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
