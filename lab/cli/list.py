"""`rpclab list`: the scenarios and their cases."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from lab import paths, terminal
from lab.case import find, load_cases
from lab.scenario import Scenario
from lab.toml import load


def command(
    scenarios: Annotated[
        list[str] | None, typer.Argument(help="Report numbers or files; default: all, briefly.")
    ] = None,
) -> None:
    """List scenarios, or the cases of some with what must happen. Checks the files too."""
    console = terminal.out()
    if not scenarios:
        table = Table("scenario", "cases", "title", box=None, pad_edge=False)
        for file in sorted(paths.SCENARIOS.glob("*.toml")):
            table.add_row(file.stem, str(len(load_cases(file))), escape(load(file, Scenario).title))
        console.print(table)
        return
    for name in scenarios:
        for case in load_cases(find(name)):
            needs = f"  (needs {', '.join(case.needs)})" if case.needs else ""
            console.print(f"{case.id}  {case.expect.outcome}{needs}", markup=False, highlight=False)
