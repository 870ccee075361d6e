"""`rpclab bisect`: where an outcome changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab import engine, evidence, paths, sources, terminal
from lab.bisect import probe, report
from lab.bisect.run import STATE, Hunt, Quest
from lab.bisect.steps import Step, build_of, steps
from lab.case import find, load_cases
from lab.errors import Exit, InputError
from lab.sources import KINDS, Kind, git
from lab.toml import unknown


def command(
    scenario: Annotated[str | None, typer.Argument(help="Report number or scenario file.")] = None,
    case: Annotated[
        str, typer.Option(help="Its case, without the pin: `glm-dsa-2w`, `glm-dsa-2w-nkvo`.")
    ] = "",
    good: Annotated[str, typer.Option(help="A build or commit without the failure.")] = "",
    bad: Annotated[str, typer.Option(help="One with it; it may be the older or the newer.")] = "",
    source: Annotated[
        str | None,
        typer.Option(help="Search `git` commits or `sdist` builds; default: git where it answers."),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(min=1, help="Runs of each build; default: as flaky as the bad end turns out."),
    ] = None,
    build: Annotated[
        bool,
        typer.Option(help="Build images; with --no-build only those that are there are tried."),
    ] = True,
    resume: Annotated[
        str | None,
        typer.Option(help="Go on with a search that was stopped: its directory, or `last`."),
    ] = None,
) -> None:
    """Find the first build where a case's outcome changed.

    Compares the signature of the outcome, not the exit code. Runs each build as often as the
    failure's rate asks for, takes a build whose image is there where that saves a compile, and
    steps over builds that do not compile. Ends may be builds (`b10724`), commits, or pins.

    Exits 0 where the two sides meet, 1 where builds between them could not be tried.

    Example: `rpclab bisect 28047 --case glm-dsa-2w --good b10816 --bad b10338 --source sdist`
    """
    if source is not None and source not in KINDS:
        raise InputError(unknown("source", source, list(KINDS)), where="--source")
    if resume is not None:
        if any((scenario, case, good, bad, source, repeat)):
            raise InputError(
                "the question was asked at the beginning",
                where="--resume",
                hint="give --no-build only, or begin a new search",
            )
        hunt = Hunt.load(_last() if resume == "last" else Path(resume))
    else:
        hunt = _new(scenario, case, good, bad, source, repeat)
    quest = hunt.quest
    its = probe.chosen(load_cases(Path(quest.scenario)), quest.case, quest.scenario)
    kind = next(kind for kind in KINDS if kind == quest.source)
    engine.client().close()
    err, out = terminal.err(), terminal.out()
    if resume is None:
        hunt.save()
    err.print(f"search: {hunt.path}", soft_wrap=True)

    def say(line: str) -> None:
        err.print(line, markup=False, soft_wrap=True)

    with probe.probe(its, kind, hunt.path, build=build) as runs:
        hunt.go(runs, say)
    text = report.lines(hunt)
    evidence.Evidence(hunt.path).write_text("found.txt", "\n".join(text) + "\n")
    for line in text:
        out.print(line, markup=False, soft_wrap=True)
    out.print(f"evidence: {hunt.path}", soft_wrap=True)
    raise typer.Exit(Exit.OK if report.found(hunt) else Exit.FAIL)


def _new(
    scenario: str | None, case: str, good: str, bad: str, source: str | None, repeat: int | None
) -> Hunt:
    for name, value in (("a scenario", scenario), ("--case", case)):
        if not value:
            raise InputError(f"{name} is missing", hint="`rpclab bisect --help` has an example")
    for name, value in (("--good", good), ("--bad", bad)):
        if not value:
            raise InputError(
                f"{name} is missing", hint="a build with the failure, and one without it"
            )
    file = find(str(scenario)).resolve()
    its = probe.chosen(load_cases(file), case, str(file))
    answers = "git" if sources.git_reachable(git.url()) else "sdist"
    kind = next(kind for kind in KINDS if kind == (source or answers))
    row = steps(kind, good, bad)
    quest = Quest(
        scenario=str(file),
        case=its.slug,
        source=kind,
        good=_name(kind, row, good),
        bad=_name(kind, row, bad),
        steps=row,
        repeat=repeat,
    )
    path = evidence.new_run(_root(), f"{its.scenario}-{probe.short(its)}")
    return Hunt(path, quest)


def _name(kind: Kind, row: list[Step], end: str) -> str:
    """Which of the two ends of a row is meant."""
    if kind == "sdist":
        return f"b{build_of(end)}"
    full = git.line(end, end)[0]
    return next(step.name for step in row if step.commit == full)


def _root() -> Path:
    return paths.runs() / "bisects"


def _last() -> Path:
    for file in sorted(_root().glob(f"*/{STATE}"), reverse=True):
        return file.parent
    raise InputError("no search that could go on", where=str(_root()), hint="begin a new one")
