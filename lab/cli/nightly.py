"""`rpclab nightly`: the matrix, every night."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from lab import paths
from lab.case import find
from lab.errors import InputError
from lab.flavours import flavours, load_flavour
from lab.nightly import budget, night, plan
from lab.nightly import run as nightly
from lab.session import Session
from lab.sources import KINDS
from lab.toml import unknown


def command(
    scenarios: Annotated[
        list[str] | None, typer.Argument(help="Report numbers or files; default: all.")
    ] = None,
    only: Annotated[str, typer.Option("-k", help="Only cases that match, as in pytest.")] = "",
    flavour: Annotated[
        list[str] | None,
        typer.Option(help="Only cases that need no other flavour, such as `cpu`; may be repeated."),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="How often each case runs.")] = 1,
    shard: Annotated[str, typer.Option(help="This machine's part of the night: `2/5`.")] = "1/1",
    minutes: Annotated[
        float | None,
        typer.Option("--budget", min=0, help="Minutes after which to stop, with a full result."),
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option("-n", min=1, help="Cases at once at most; default: cores and memory decide."),
    ] = None,
    build: Annotated[
        bool,
        typer.Option(
            help="Build images that are missing; with --no-build their cases are skipped."
        ),
    ] = True,
    source: Annotated[
        str | None, typer.Option(help="Where llama.cpp comes from: `git` or `sdist`.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Go on with a night that was killed or ran out of time: its directory, or `last`."
        ),
    ] = None,
) -> None:
    """Run every scenario over every pin and flavour, and say what changed since the last time.

    Longest first, as many at once as cores and memory allow. Leaves the evidence of every case,
    `result.json`, `junit.xml` and `summary.md` in `runs/nights/<time>-nightly/`.

    Exit codes: the low three bits (`code & 7`) are 0 all passed, 1 a case failed, 4 the lab itself
    failed, 5 nothing failed but not everything was run; to which is added 8 for a new crash, 16 a
    gone crash, 32 a changed signature, 64 a changed output, 128 a flaky case. 2 wrong input, 3 no
    container engine and 130 interrupted come alone.

    Examples: `rpclab nightly --flavour cpu --repeat 3`, `rpclab nightly --shard 1/2 --budget 60`,
    `rpclab nightly --resume last`
    """
    if source is not None and source not in KINDS:
        raise InputError(unknown("source", source, list(KINDS)), where="--source")
    until = time.time() + minutes * 60 if minutes is not None else None
    if resume is not None:
        chosen = (scenarios, only, flavour, source)
        if any(chosen) or (repeat, shard, build) != (1, "1/1", True):
            raise InputError(
                "the night's choice was made at its beginning",
                where="--resume",
                hint="give --budget and -n only, or begin a new night",
            )
        its, made = night.Night.resume(resume)
    else:
        files = [find(name) for name in scenarios or []]
        files = list(dict.fromkeys(files)) or sorted(paths.SCENARIOS.glob("*.toml"))
        part = plan.Shard.parse(shard)
        known = {name: load_flavour(name) for name in flavours()}
        cases = plan.in_flavours(Session(files, only).cases(), flavour or [], known)
        if not cases:
            raise InputError("no case needs only these flavours", where="--flavour")
        recorded = night.history(night.earlier()).durations()
        made = night.Plan(
            files={str(file.resolve()): night.digest(file) for file in files},
            jobs=plan.jobs(part.of(cases), recorded, budget.machine().cores),
            repeat=repeat,
            build=build,
            source=source,
        )
        if not made.jobs:
            raise InputError("no case falls to this shard", where="--shard")
        its = night.Night.begin(made)
    raise typer.Exit(nightly.run(its, made, parallel=parallel, until=until))
