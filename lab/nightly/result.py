"""Evidence -> what a night found: for each case each run's outcome, and one word. Pure."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.errors import InputError
from lab.evidence import Evidence

RESULT = "result.json"

WORDS = ("pass", "fail", "flaky", "error", "skip", "not run")
"""One for each case, best first: a table counts them in this order."""


@dataclass(frozen=True)
class Observed:
    """What one run of a case did, as far as two runs may be compared."""

    outcome: str
    node: str | None = None
    phase: str | None = None
    signature: str | None = None
    output: str | None = None
    """A digest of the answers' tokens; None where there is none, or rounding may decide it."""

    def words(self) -> str:
        """One line."""
        where = " ".join(
            f"{word} {value}" for word, value in (("of", self.node), ("in", self.phase)) if value
        )
        named = f"({self.signature})" if self.signature else ""
        said = f"[output {self.output}]" if self.output else ""
        return " ".join(part for part in (self.outcome, where, named, said) if part)


@dataclass(frozen=True)
class Attempt:
    """One run of a case."""

    verdict: str
    reason: str
    observed: Observed | None
    """None: skipped, or the lab itself failed."""
    line: str | None = None
    """The log line that matters most."""
    seconds: float | None = None
    evidence: str = ""
    """Its directory's name."""


@dataclass(frozen=True)
class CaseResult:
    """All runs of one case."""

    id: str
    scenario: str
    pin: str
    wanted: int = 1
    """How often it was to be run."""
    attempts: list[Attempt] = field(default_factory=list)
    reason: str = ""
    """Why it did not run, where it did not."""

    @property
    def observed(self) -> list[Observed]:
        """Every run that says something about llama.cpp."""
        return [a.observed for a in self.attempts if a.observed is not None]

    @property
    def flaky(self) -> bool:
        """Whether runs of the same thing disagree."""
        return len(set(self.observed)) > 1

    @property
    def word(self) -> str:
        """One of `WORDS`. A disagreement is neither a pass nor a failure."""
        words = {attempt.verdict for attempt in self.attempts}
        if "error" in words:
            return "error"
        if self.flaky:
            return "flaky"
        for word in ("fail", "pass", "skip"):
            if word in words:
                return word
        return "not run"

    @property
    def complete(self) -> bool:
        """Whether it ran as often as wanted, or could not."""
        return self.word == "skip" or len(self.attempts) >= self.wanted

    @property
    def seconds(self) -> float | None:
        """Median seconds of a run."""
        times = [a.seconds for a in self.attempts if a.seconds is not None]
        return statistics.median(times) if times else None

    def words(self) -> str:
        """What happened, in one line."""
        if self.flaky:
            seen = self.observed
            each = (f"{seen.count(o)} x {o.words()}" for o in dict.fromkeys(seen))
            return f"{len(seen)} runs disagree: {'; '.join(each)}"
        worst = next((a for a in self.attempts if a.verdict == self.word), None)
        return worst.reason if worst else self.reason


@dataclass(frozen=True)
class Result:
    """A night's."""

    cases: list[CaseResult]
    changes: list[dict[str, str]] = field(default_factory=list)
    """Against earlier nights, as `lab/nightly/compare.py` names them."""
    seconds: float = 0.0
    """From the begin to the end; of a resumed night, of its last part."""

    @property
    def not_run(self) -> list[CaseResult]:
        """The cases that did not run as often as wanted."""
        return [case for case in self.cases if not case.complete]

    def updated(self, newer: Result) -> Result:
        """With what a newer night knows of each case; one that it did not run stays."""
        known = {case.id: case for case in self.cases}
        known |= {case.id: case for case in newer.cases if case.observed}
        return Result(list(known.values()))

    def durations(self) -> dict[str, float]:
        """Case id -> seconds."""
        return {case.id: case.seconds for case in self.cases if case.seconds is not None}

    def to_json(self) -> dict[str, Any]:
        """The content of `result.json`; what follows from the rest is in it for programs."""
        cases = [dataclasses.asdict(c) | {"word": c.word, "words": c.words()} for c in self.cases]
        return {
            "seconds": round(self.seconds, 1),
            "counts": self.counts(),
            "changes": self.changes,
            "not_run": [case.id for case in self.not_run],
            "cases": cases,
        }

    def counts(self) -> dict[str, int]:
        """Word -> cases."""
        words = [case.word for case in self.cases]
        return {word: words.count(word) for word in WORDS}

    @classmethod
    def load(cls, night: Path) -> Result:
        """Of a night's directory. Raises `InputError` where it has none."""
        data = Evidence(night).read(RESULT)
        try:
            cases = [_case_of(case) for case in data["cases"]]
            return cls(cases, data["changes"], data["seconds"])
        except (KeyError, TypeError) as error:
            raise InputError(f"no result of a night: {error!r}", where=str(night)) from None


def attempt_of(evidence: Evidence) -> Attempt:
    """One run of a case, from its directory."""
    case = evidence.read("case.json")
    verdict = evidence.read("verdict.json")
    outcome = evidence.read("outcome.json", {})
    observed = None
    if verdict["verdict"] in ("pass", "fail"):
        # A tie lets two tokens be right; which of them comes is no change.
        ties = case["workload"].get("ties", False)
        observed = Observed(
            outcome["outcome"],
            outcome["node"],
            outcome["phase"],
            outcome["signature"],
            None if ties else _digest(evidence.read("answers.json", [])),
        )
    return Attempt(
        verdict["verdict"],
        verdict["reason"],
        observed,
        verdict.get("line"),
        _seconds(evidence),
        evidence.path.name,
    )


def _digest(answers: list[dict[str, Any]]) -> str | None:
    """Of the tokens of answers that came whole; of others the rest depends on the moment."""
    tokens = [answer["tokens"] for answer in answers if not answer.get("error")]
    if not tokens or len(tokens) < len(answers):
        return None
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:12]


def _seconds(evidence: Evidence) -> float | None:
    times: dict[str, float] = {event["event"]: event["t"] for event in evidence.events()}
    if "begin" not in times or "removed" not in times:
        return None
    return round(times["removed"] - times["begin"], 2)


def _case_of(data: dict[str, Any]) -> CaseResult:
    attempts = [
        Attempt(**a | {"observed": Observed(**a["observed"]) if a["observed"] else None})
        for a in data["attempts"]
    ]
    names = {f.name for f in dataclasses.fields(CaseResult)}
    return CaseResult(**{k: v for k, v in data.items() if k in names} | {"attempts": attempts})
