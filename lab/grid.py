"""Heads of one build against workers of another, as a grid. Pure: reads a run's evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from lab.evidence import Evidence, case_dirs
from lab.facts import workers_used
from lab.outcome import Outcome, classify

WORKS, DROPPED = "works", "dropped"
"""An answer that is right: with the worker; without it, the head having gone on alone."""


@dataclass
class Grid:
    """One model over heads and workers; builds are sorted."""

    title: str
    cells: dict[tuple[int, int], str] = field(default_factory=dict)
    """(head's build, worker's build) -> what happened, in a word or two."""
    protocol: dict[int, str] = field(default_factory=dict)
    """Build -> what it speaks, as its worker said in HELLO."""

    @property
    def heads(self) -> list[int]:
        """The rows."""
        return sorted({head for head, _ in self.cells})

    @property
    def workers(self) -> list[int]:
        """The columns."""
        return sorted({worker for _, worker in self.cells})

    def name(self, build: int) -> str:
        """A build with its protocol."""
        return f"b{build} {self.protocol.get(build, '')}".strip()

    def table(self) -> Table:
        """For a terminal."""
        table = Table("head \\ worker", *map(self.name, self.workers), title=self.title, box=None)
        for head in self.heads:
            cells = [self.cells.get((head, worker), "") for worker in self.workers]
            table.add_row(self.name(head), *(_coloured(cell) for cell in cells))
        return table

    def markdown(self) -> str:
        """For a comment upstream."""
        lines = [["head \\ worker", *map(self.name, self.workers)], ["---"] * len(self.workers)]
        lines[1].append("---")
        for head in self.heads:
            cells = [self.cells.get((head, worker), "") for worker in self.workers]
            lines.append([self.name(head), *cells])
        return f"{self.title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def grids(run: Path) -> list[Grid]:
    """The grids of a run: one for each model and number of workers that ran on mixed builds."""
    found: dict[str, Grid] = {}
    for path in case_dirs(run):
        evidence = Evidence(path)
        case = evidence.read("case.json")
        heads = _builds([case.get("image", {})])
        workers = _builds(case.get("worker_images", []))
        if len(heads) != 1 or len(workers) != 1:
            continue
        (head,), (worker,) = heads, workers
        title = f"{case['model']['name']}, {case['workers']} worker(s)"
        grid = found.setdefault(title, Grid(title))
        grid.cells[head, worker] = word(classify(evidence))
        for event in evidence.events():
            if event["event"] == "link-up":
                grid.protocol[worker] = event["protocol"]
    return [grid for grid in found.values() if any(head != worker for head, worker in grid.cells)]


def word(outcome: Outcome) -> str:
    """What happened, as short as a cell is."""
    if outcome.outcome == "ok":
        return WORKS if workers_used(outcome.facts) else DROPPED
    return f"{outcome.outcome} in {outcome.phase}" if outcome.phase else outcome.outcome


def _builds(images: list[dict[str, Any]]) -> set[int]:
    """The builds that really ran: none where the case did not get that far."""
    names = [image.get("labels", {}).get("rpclab.build", "") for image in images]
    return {int(name.lstrip("b")) for name in names if name.lstrip("b").isdigit()}


def _coloured(cell: str) -> str:
    colour = {WORKS: "green", DROPPED: "yellow"}.get(cell, "red")
    return f"[{colour}]{cell}[/]"
