"""A night's directory: what was to be run, and what of it is done.

runs/nights/<time>-nightly/
    plan.json       what is to be run (`Plan`): a night that was killed goes on from it
    <case>/...      the evidence, as of every run; a case run twice has <case>.2
    result.json     what happened (`lab/nightly/result.py`), junit.xml, summary.md
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import evidence, paths
from lab.errors import InputError
from lab.evidence import Evidence, case_dirs
from lab.nightly.plan import Job, Need
from lab.nightly.result import RESULT, Result

PLAN = "plan.json"
LAST = "last"
"""For `--resume`: the last night that has a plan and no result of all of it."""


@dataclass(frozen=True)
class Plan:
    """A night's choice, fixed at its start."""

    files: dict[str, str]
    """Scenario file -> sha256: a night that goes on must mean the same cases."""
    jobs: list[Job]
    """Longest first."""
    repeat: int = 1
    build: bool = True
    """Whether images that are missing are built."""
    source: str | None = None
    """Where llama.cpp comes from: `git` or `sdist`; None: what can be reached."""

    def to_json(self) -> dict[str, Any]:
        """The content of `plan.json`."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """Of `to_json`."""
        jobs = [Job(**job | {"need": Need(**job["need"])}) for job in data["jobs"]]
        return cls(**data | {"jobs": jobs})


@dataclass(frozen=True)
class Night:
    """One night's directory."""

    path: Path

    @classmethod
    def begin(cls, plan: Plan) -> Night:
        """A new one."""
        night = cls(evidence.new_run(root(), "nightly"))
        night._evidence.write(PLAN, plan.to_json())
        return night

    @classmethod
    def resume(cls, name: str) -> tuple[Night, Plan]:
        """One that was killed or ran out of time, and its plan.

        Raises:
            InputError: there is none; or its scenario files changed since.
        """
        path = _last_unfinished() if name == LAST else Path(name)
        night = cls(path)
        try:
            plan = Plan.from_json(night._evidence.read(PLAN, {}))
        except (KeyError, TypeError):
            raise InputError(
                f"no night in it (no usable {PLAN})", where=str(path), hint=f"look in {root()}"
            ) from None
        for file, known in plan.files.items():
            if digest(Path(file)) != known:
                raise InputError(
                    "changed since the night began", where=file, hint="begin a new night"
                )
        return night, plan

    def done(self) -> dict[str, int]:
        """Case id -> how often it has come to a verdict. One cut short has none."""
        counts: dict[str, int] = {}
        for path in case_dirs(self.path):
            if (path / "verdict.json").is_file():
                case = Evidence(path).read("case.json")["id"]
                counts[case] = counts.get(case, 0) + 1
        return counts

    @property
    def _evidence(self) -> Evidence:
        return Evidence(self.path)


def root() -> Path:
    """Where the nights are."""
    return paths.runs() / "nights"


def digest(file: Path) -> str:
    """Of a scenario file; empty where it is gone."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def earlier(before: Path | None = None) -> list[Path]:
    """The nights that have a result, oldest first; those before another one only."""
    nights = sorted(file.parent for file in root().glob(f"*/{RESULT}"))
    return [night for night in nights if before is None or night.name < before.name]


def history(nights: Iterable[Path]) -> Result:
    """The last that is known of each case over several nights, oldest first."""
    known = Result([])
    for night in nights:
        known = known.updated(Result.load(night))
    return known


def _last_unfinished() -> Path:
    for file in sorted(root().glob(f"*/{PLAN}"), reverse=True):
        result = file.with_name(RESULT)
        if not result.is_file() or Result.load(file.parent).not_run:
            return file.parent
    raise InputError("no night that could go on", where=str(root()), hint="begin a new one")
