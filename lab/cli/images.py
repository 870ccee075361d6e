"""`rpclab images`: list and build."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from lab import terminal
from lab.errors import InputError
from lab.images import ensure, ensure_toxiproxy
from lab.images.listing import Entry, entries, entry, parse, used
from lab.progress import Progress
from lab.toml import unknown

VERBS = ["list", "build"]


def command(
    verb: Annotated[str, typer.Argument(help="`list` or `build`.")] = "list",
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Pins (`f1793c1c4`) or images (`f1793c1c4-cpu-offload-false`)."),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Where llama.cpp comes from: `git` or `sdist`.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Build even what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List the images, with why one would be built again, or build some.

    `build` with no name builds those of every pin in use, and toxiproxy's.
    """
    if verb not in VERBS:
        raise InputError(unknown("verb", verb, VERBS), where="rpclab images")
    if verb == "list":
        if names or source or force:
            raise InputError("`list` takes no names, --source or --force", where="rpclab images")
        _show(entries(), as_json)
        return
    specs = [parse(name) for name in names] if names else used()
    progress = Progress()
    ensure_toxiproxy(progress)
    for spec in specs:
        ensure(spec, source=source, progress=progress, force=force)
    _show([entry(spec) for spec in specs], as_json)


def _show(found: list[Entry], as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(entry) for entry in found], indent=1))
        return
    columns = ("image", "build", "source", "state", "MB", "built in")
    table = Table(*columns, box=None, pad_edge=False)
    for item in found:
        table.add_row(
            item.name,
            item.build,
            item.source,
            f"{item.state}: {item.why}" if item.why else item.state,
            "" if item.megabytes is None else str(item.megabytes),
            str(item.time or ""),
        )
    terminal.out().print(table)
