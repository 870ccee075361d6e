"""A run for people: verdicts, and where the seconds went."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab.evidence import Evidence, case_dirs
from lab.grid import grids
from lab.verdict import Verdict

COLOURS = {"pass": "green", "fail": "red", "skip": "yellow", "error": "magenta"}

CRASH_STAGE = "head crashes"
STAGES = (
    ("networks, workers, proxy up", "begin", "containers-up"),
    ("links up, HELLO answered", "containers-up", "head-started"),
    ("head up (load, warm-up)", "head-started", "healthy"),
    ("answers", "healthy", "shutdown"),
    ("head stops", "shutdown", "exit"),
    (CRASH_STAGE, "head-started", "exit"),
    ("all removed", "exit", "removed"),
    ("whole case", "begin", "removed"),
)
"""(name, from event, to event): what a case's time is made of."""


@dataclass(frozen=True)
class RunRow:
    """One case of a run."""

    id: str
    verdict: str
    reason: str
    ran: str
    path: Path
    line: str | None
    """The log line that matters most."""


def rows(run: Path, verdicts: Mapping[Path, Verdict] | None = None) -> list[RunRow]:
    """The cases of a run, in order of their directories.

    Args:
        run: the run's evidence directory.
        verdicts: fresh ones by case directory, in place of those that the run recorded.
    """
    found = []
    for path in case_dirs(run):
        evidence = Evidence(path)
        case = evidence.read("case.json")
        if verdicts and path in verdicts:
            verdict = verdicts[path].to_json()
        else:
            verdict = evidence.read(
                "verdict.json", {"verdict": "error", "reason": "stopped in mid-case"}
            )
        found.append(
            RunRow(
                case["id"],
                verdict["verdict"],
                verdict["reason"],
                case.get("ran", "-"),
                path,
                verdict.get("line"),
            )
        )
    return found


def print_run(run: Path, console: Console, verdicts: Mapping[Path, Verdict] | None = None) -> None:
    """The table of a run, its sum and where the time went; `verdicts` as for `rows`."""
    table = Table("case", "verdict", "what happened", "really ran", box=None, pad_edge=False)
    table.columns[0].overflow = "fold"
    found = rows(run, verdicts)
    for row in found:
        colour = COLOURS[row.verdict]
        # `b10338 (sdist, stands in for 74ce15741)`: the pin is in the case's id already.
        ran = re.sub(r",.*\)", ")", row.ran)
        table.add_row(escape(row.id), f"[{colour}]{row.verdict}[/]", escape(row.reason), ran)
    console.print(table)
    for grid in grids(run):
        console.print(grid.table())
    counts = Counter(row.verdict for row in found)
    console.print(", ".join(f"{counts[word]} {word}" for word in COLOURS), style="bold")
    if len(found) > 1:
        print_times(run, console)
    for row in found:
        if row.verdict in ("fail", "error"):
            print_trouble(row, console)
        _print_kept(row, console)
    console.print(f"evidence: {run}", soft_wrap=True)


def print_trouble(row: RunRow, console: Console) -> None:
    """The three lines of a failed case: why, the log line that matters, where the rest is."""
    lines = (row.reason, f"log: {row.line or '(no log line)'}", f"evidence: {row.path}")
    console.print(f"{row.id}", style="bold", markup=False, highlight=False)
    for line in lines:
        console.print(f"    {line}", markup=False, highlight=False, soft_wrap=True)


def _print_kept(row: RunRow, console: Console) -> None:
    """What `--keep` left up, by name."""
    for event in Evidence(row.path).events():
        if event["event"] == "kept":
            names = " ".join(event["containers"].values())
            console.print(
                f"kept: {row.id}: head at {event['head']}, containers {names} "
                "(`rpclab clean --kept` removes them)",
                markup=False,
                soft_wrap=True,
            )


@dataclass(frozen=True)
class StageTimes:
    """Where the time of a run went."""

    stages: dict[str, list[float]]
    """Stage -> seconds, one for each case that went through it."""
    total: float
    """Seconds from the first case's begin to the last one's end."""


def stage_times(run: Path) -> StageTimes:
    """Read off the timelines of a run."""
    stages: dict[str, list[float]] = {name: [] for name, _, _ in STAGES}
    begin, end = float("inf"), 0.0
    for path in case_dirs(run):
        first: dict[str, float] = {}
        for event in Evidence(path).events():
            if event["event"] != "exit" or event["node"] == "head":
                first.setdefault(event["event"], event["t"])
        crashed = "shutdown" not in first
        for name, start, stop in STAGES:
            if start in first and stop in first and (crashed or name != CRASH_STAGE):
                stages[name].append(first[stop] - first[start])
        if "begin" in first and "removed" in first:
            begin, end = min(begin, first["begin"]), max(end, first["removed"])
    return StageTimes(stages, max(0.0, end - begin) if end else 0.0)


def print_times(run: Path, console: Console) -> None:
    """Median and longest seconds of each stage, over the cases that went through it."""
    times = stage_times(run)
    if not times.total:
        return
    table = Table("seconds", "cases", "median", "longest", box=None, pad_edge=False)
    for name, values in times.stages.items():
        if values:
            median = statistics.median(values)
            table.add_row(name, str(len(values)), f"{median:.2f}", f"{max(values):.2f}")
    console.print(table)
    count = len(times.stages["whole case"])
    rate = 60 * count / times.total
    console.print(f"{count} cases in {times.total:.1f} s: {rate:.0f} a minute")
