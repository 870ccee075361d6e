"""`rpclab clean`: remove what dead labs left on the engine."""

from __future__ import annotations

from typing import Annotated

import typer

from lab import engine, sweep, terminal


def command(
    kept: Annotated[bool, typer.Option(help="Also what `rpclab run --keep` left up.")] = False,
) -> None:
    """Remove containers, networks and volumes of labs that no longer run.

    Those of a lab that is still at work stay, and so do images, caches and evidence.
    """
    count = sweep.sweep_stale(engine.client(), kept=kept)
    terminal.out().print(f"removed: {count} containers, networks and volumes")
