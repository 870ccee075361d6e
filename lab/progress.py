"""Tell a waiting user what is going on, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

Update = Callable[[str], None]
"""Called with what is happening now, as often as wanted."""

QUIET_SECONDS = 2.0
BEAT_SECONDS = 60.0


class Progress:
    """Steps with a name and a time. Nothing is said about a step under two seconds.

    On a terminal one line moves; elsewhere (CI) a line comes at the start, each minute, and at
    the end.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)

    def say(self, line: str) -> None:
        """One line, now."""
        self.console.print(line, markup=False)

    @contextmanager
    def step(self, title: str) -> Iterator[Update]:
        """A step that may take long; calls of the update say how far it is."""
        start = time.monotonic()
        if self.console.is_terminal:
            with self.console.status(title) as status:
                yield lambda text: status.update(f"{title} {_clock(start)} {text}".strip())
        else:
            yield self._lines(title, start)
        if time.monotonic() - start > QUIET_SECONDS:
            self.say(f"{title}: {_clock(start)}")

    def _lines(self, title: str, start: float) -> Update:
        due = start + QUIET_SECONDS

        def update(text: str) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + BEAT_SECONDS
                self.say(f"{title} {_clock(start)} {text}".rstrip() + " ...")

        return update


def _clock(start: float) -> str:
    seconds = time.monotonic() - start
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
