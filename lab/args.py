"""Command lines of llama.cpp, as lists of words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def without(args: Iterable[str], flags: Mapping[str, int]) -> tuple[str, ...]:
    """The arguments without some flags. `flags`: each spelling -> how many values it takes."""
    kept: list[str] = []
    skip = 0
    for arg in args:
        if skip:
            skip -= 1
        elif arg in flags:
            skip = flags[arg]
        else:
            kept.append(arg)
    return tuple(kept)


def value(args: Iterable[str], *spellings: str) -> str | None:
    """The value of a flag that takes one; the last counts, as in llama.cpp. None: not given."""
    words = list(args)
    at = [place for place, word in enumerate(words[:-1]) if word in spellings]
    return words[at[-1] + 1] if at else None
