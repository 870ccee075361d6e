"""Where the lab prints: the user's terminal, or a file or pipe, whose lines are not broken."""

from __future__ import annotations

from rich.console import Console

PLAIN_WIDTH = 140
"""Columns of what goes to a file, a pipe or a picture: no line of a report breaks."""


def out(*, record: bool = False) -> Console:
    """Standard output; `record` for a picture of it."""
    return _wide(Console(record=record, highlight=False), record)


def err() -> Console:
    """Standard error: progress and errors."""
    return _wide(Console(stderr=True, highlight=False), False)


def _wide(console: Console, always: bool) -> Console:
    if always or not console.is_terminal:
        console.width = max(console.width, PLAIN_WIDTH)
    return console
