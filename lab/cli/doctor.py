"""`rpclab doctor`: what is here, what is missing, what to do next."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from lab import terminal
from lab.checks import Check, run_checks
from lab.errors import Exit


def command(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Say what the lab needs, what is here, and the next step for what is not.

    Exits 3 where no container engine answers.
    """
    checks = run_checks()
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        terminal.out().print(_table(checks))
    if not next(check for check in checks if check.name == "engine").ok:
        raise typer.Exit(Exit.NO_ENGINE)


def _table(checks: list[Check]) -> Table:
    table = Table("", "what", "found", "next step", box=None, pad_edge=False)
    for check in checks:
        mark = "[green]ok" if check.ok else "[red]missing" if check.needed else "[yellow]without"
        table.add_row(mark, check.name, check.found, "" if check.ok else check.next)
    return table
