"""`rpclab run`: run scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab import paths
from lab.case import find
from lab.errors import InputError
from lab.session import Session


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
    session = Session(
        files,
        only=only,
        parallel=None if parallel == "auto" else int(parallel),
        source=source,
        keep=keep,
        junitxml=junitxml,
    )
    raise typer.Exit(session.run())
