"""`rpclab judge`: judge old evidence again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab import report, terminal
from lab.errors import Exit, InputError
from lab.evidence import Evidence, case_dirs
from lab.verdict import Verdict, judge_evidence, record


def command(
    run: Annotated[Path, typer.Argument(help="A run's evidence directory, or one case's.")],
    write: Annotated[
        bool,
        typer.Option("--write", help="Record the verdicts; earlier ones stay, `verdict.1.json`."),
    ] = False,
    svg: Annotated[
        Path | None, typer.Option(help="Also draw the report as a picture, for an issue or a page.")
    ] = None,
) -> None:
    """Judge a run again from its evidence alone: no engine, no container.

    Says which verdicts changed, and leaves the evidence as it is unless told to write. A better
    classifier re-judges history.
    """
    console = terminal.out(record=svg is not None)
    found = list(case_dirs(run))
    if not found:
        raise InputError("no case in it (no case.json)", where=str(run), hint="name runs/<run>")
    verdicts: dict[Path, Verdict] = {}
    for path in found:
        evidence = Evidence(path)
        before = evidence.read("verdict.json", {}).get("verdict")
        outcome, verdict = judge_evidence(evidence)
        verdicts[path] = verdict
        if before not in (None, verdict.verdict):
            console.print(f"changed: {path.name}: {before} -> {verdict.verdict}", soft_wrap=True)
        if write:
            record(evidence, outcome, verdict)
    report.print_run(run, console, verdicts)
    if svg:
        console.save_svg(str(svg), title=f"rpclab judge {run.name}")
    words = {verdict.verdict for verdict in verdicts.values()}
    if "error" in words:
        raise typer.Exit(Exit.ERROR)
    raise typer.Exit(Exit.FAIL if "fail" in words else Exit.OK)
