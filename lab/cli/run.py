"""`rpclab run`: run scenarios."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import pytest
import typer
from rich.console import Console

from lab import engine, evidence, images, paths, report
from lab.errors import Exit, InputError, LabError
from lab.plugin import CaseItem
from lab.scenario import Case, find, load_cases

# pytest cannot rewrite the assertions of a package that runs it; the lab has none to rewrite.
QUIET = (
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
    console = Console(stderr=True)
    files = [find(name) for name in scenarios or []]
    if every:
        files += [file for file in sorted(paths.SCENARIOS.glob("*.toml")) if file not in files]
    if not files:
        raise InputError(
            "no scenario named", hint="`rpclab run 28047`, or `--all`; see rpclab list"
        )
    if source not in (None, "git", "sdist"):
        raise InputError(f"unknown source {source!r}; allowed: git, sdist", where="--source")
    for file in files:
        load_cases(file)  # a wrong file ends here, with nothing started
    cases = _selected(files, only)
    engine.client().close()
    _prepare(cases, source, console)

    run = evidence.new_run(paths.runs(), "-".join(file.stem for file in files))
    options = ["-v", "--no-header", "--tb=short", "-n", parallel, *QUIET]
    options += ["-rN", "--rootdir", str(paths.PROJECT), "--rpclab-run", str(run)]
    options += ["-k", only] if only else []
    options += ["--rpclab-keep"] if keep else []
    options += ["--rpclab-source", source] if source else []
    options += [f"--junitxml={junitxml}"] if junitxml else []
    code = pytest.main([*map(str, files), *options])
    report.print_run(run, Console())
    raise typer.Exit(_exit_code(run, int(code)))


class _Selection:
    """Asks pytest which cases `-k` chooses."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The items are those that are left after the deselection."""
        self.cases = [item.case for item in session.items if isinstance(item, CaseItem)]


def _selected(files: list[Path], only: str) -> list[Case]:
    selection = _Selection()
    options = ["--collect-only", "-p", "no:terminal", *QUIET, *(["-k", only] if only else [])]
    code = pytest.main([*map(str, files), *options], plugins=[selection])
    if code == pytest.ExitCode.USAGE_ERROR:
        raise InputError(f"not an expression of pytest's -k: {only!r}", where="-k")
    if not selection.cases:
        raise InputError(f"no case matches {only!r}", where="-k", hint="`rpclab list REPORT`")
    return selection.cases


def _prepare(cases: list[Case], source: str | None, console: Console) -> None:
    """Images first, one build at a time: cases run side by side and must not wait for a build."""
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
