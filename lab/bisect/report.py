"""What a search found, in words. Pure."""

from __future__ import annotations

from lab.bisect.run import Hunt, Tried


def found(hunt: Hunt) -> bool:
    """Whether every build between the two sides was tried."""
    return not hunt.search.open


def lines(hunt: Hunt) -> list[str]:
    """The first good (or bad) build, the log line that changed, and what range is left."""
    search, tried = hunt.search, hunt.tried
    old, new = search.old, search.new
    was, now = tried[old], tried[new]
    said = [f"first {now.side}: {new}", f"last {was.side}: {old}"]
    said.append(f"{old}: {_words(was)}")
    said.append(f"{new}: {_words(now)}")
    if hunt.quest.source == "sdist":
        said.append(_builds(int(old[1:]), int(new[1:])))
    elif not search.between:
        commit = next(step.commit for step in hunt.quest.steps if step.name == new)
        said.append(f"the change is commit {commit}")
    else:
        said.append(f"the change is {new} or one of the {len(search.between)} before it")
    for name in search.between:
        said.append(f"  {name}: {tried[name].reason if name in tried else 'not tried: no image'}")
    compiled = [name for name in tried if name not in (hunt.quest.good, hunt.quest.bad)]
    runs = sum(len(each.runs) for each in tried.values())
    said.append(f"tried between the ends: {len(compiled)} ({', '.join(compiled)}); {runs} runs")
    return said


def _builds(old: int, new: int) -> str:
    if new - old == 1:
        return f"the change is the one commit of b{new}"
    return (
        f"the change is one of the {new - old} commits of b{old + 1} to b{new}: "
        f"`git log b{old}..b{new}`, `--source git --good ... --bad ...` tells which"
    )


def _words(tried: Tried) -> str:
    told = tried.told
    if told is None:
        return tried.reason
    return f"{told.words}\n    log: {told.line}" if told.line else told.words
