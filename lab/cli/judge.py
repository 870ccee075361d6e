"""`rpclab judge`: judge old evidence again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lab import report
from lab.errors import Exit, InputError
from lab.evidence import Evidence, case_dirs
from lab.verdict import rejudge


def command(
    run: Annotated[Path, typer.Argument(help="A run's evidence directory, or one case's.")],
) -> None:
    """Judge a run again from its evidence alone: no engine, no container.

    Says which verdicts changed. A better classifier re-judges history.
    """
    console = Console()
    found = list(case_dirs(run))
    if not found:
        raise InputError("no case in it (no case.json)", where=str(run), hint="name runs/<run>")
    verdicts = []
    for path in found:
        evidence = Evidence(path)
        before = evidence.read("verdict.json", {}).get("verdict")
        _, verdict = rejudge(evidence)
        verdicts.append(verdict.verdict)
        if before not in (None, verdict.verdict):
            console.print(f"changed: {path.name}: {before} -> {verdict.verdict}")
    report.print_run(run, console)
    if "error" in verdicts:
        raise typer.Exit(Exit.ERROR)
    raise typer.Exit(Exit.FAIL if "fail" in verdicts else Exit.OK)
