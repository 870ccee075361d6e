"""A run for people: verdicts, and where the seconds went."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab.evidence import Evidence, case_dirs
from lab.verdict import Verdict

COLOURS = {"pass": "green", "fail": "red", "skip": "yellow", "error": "magenta"}

STAGES = (
    ("networks, workers, proxy up", "begin", "containers-up"),
    ("links up, HELLO answered", "containers-up", "head-started"),
    ("head up (load, warm-up)", "head-started", "healthy"),
    ("answers", "healthy", "shutdown"),
    ("head stops", "shutdown", "exit"),
    ("head crashes", "head-started", "exit"),
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
            RunRow(case["id"], verdict["verdict"], verdict["reason"], case.get("ran", "-"), path)
        )
    return found


def print_run(run: Path, console: Console, verdicts: Mapping[Path, Verdict] | None = None) -> None:
    """The table of a run, its sum and where the time went; `verdicts` as for `rows`."""
    table = Table("case", "verdict", "what happened", "really ran", box=None, pad_edge=False)
    table.columns[0].overflow = "fold"
    found = rows(run, verdicts)
    for row in found:
        colour = COLOURS[row.verdict]
        table.add_row(escape(row.id), f"[{colour}]{row.verdict}[/]", escape(row.reason), row.ran)
    console.print(table)
    counts = Counter(row.verdict for row in found)
    console.print(", ".join(f"{counts[word]} {word}" for word in COLOURS), style="bold")
    print_times(run, console)
    console.print(f"evidence: {run}", soft_wrap=True)


def print_times(run: Path, console: Console) -> None:
    """Median and longest seconds of each stage, over the cases that went through it."""
    stages: dict[str, list[float]] = {name: [] for name, _, _ in STAGES}
    begin, end = float("inf"), 0.0
    for path in case_dirs(run):
        events = Evidence(path).events()
        first: dict[str, float] = {}
        for event in events:
            if event["event"] == "exit" and event["node"] != "head":
                continue
            first.setdefault(event["event"], event["t"])
        for name, start, stop in STAGES:
            crash_stage = name == "head crashes"
            if (
                start in first
                and stop in first
                and crash_stage == ("shutdown" not in first and stop == "exit")
            ):
                stages[name].append(first[stop] - first[start])
        if "begin" in first and "removed" in first:
            begin, end = min(begin, first["begin"]), max(end, first["removed"])
    table = Table("seconds", "cases", "median", "longest", box=None, pad_edge=False)
    for name, values in stages.items():
        if values:
            median = statistics.median(values)
            table.add_row(name, str(len(values)), f"{median:.2f}", f"{max(values):.2f}")
    if end:
        console.print(table)
        count = len(stages["whole case"])
        console.print(
            f"{count} cases in {end - begin:.1f} s: {60 * count / (end - begin):.0f} a minute"
        )
