"""A search: what is known is written down after each build, so that a killed one goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from lab.bisect.marks import FIRST_RUNS, MOST_RUNS, Question, question
from lab.bisect.search import Search
from lab.bisect.steps import Step
from lab.errors import InputError, LabError
from lab.evidence import Evidence
from lab.mark import Mark

STATE = "search.json"
GIVE_UP = 3
"""Builds in a row that cannot be built: then it is not them."""


class NotBuilt(Exception):
    """A build cannot be tried; the text says why."""


@dataclass(frozen=True)
class Run:
    """One run of the case on one build."""

    mark: Mark
    words: str
    """The outcome, in one line."""
    line: str | None
    """The log line that matters most."""


class Probe(Protocol):
    """Runs the case on a build."""

    def seconds(self, step: Step) -> float | None:
        """About what it takes; None: it cannot be built here."""

    def prepare(self, step: Step) -> None:
        """Build it. Raises `NotBuilt`."""

    def run(self, step: Step) -> Run:
        """Run the case once. Raises `LabError`: nothing is said about llama.cpp."""


@dataclass(frozen=True)
class Tried:
    """What is known of one build."""

    side: str | None
    """`good`, `bad`; None: it says nothing."""
    runs: list[Run] = field(default_factory=list)
    reason: str = ""
    """Why it says nothing."""

    @property
    def told(self) -> Run | None:
        """The run that decided: a build is tried no further once it was bad."""
        return self.runs[-1] if self.runs else None


@dataclass(frozen=True)
class Quest:
    """What is asked: fixed at the start."""

    scenario: str
    """The scenario's file."""
    case: str
    source: str
    good: str
    bad: str
    """Names of steps."""
    steps: list[Step]
    """Oldest first."""
    repeat: int | None = None


@dataclass
class Hunt:
    """A search under way, and its directory."""

    path: Path
    quest: Quest
    tried: dict[str, Tried] = field(default_factory=dict)
    question: Question | None = None

    @classmethod
    def load(cls, path: Path) -> Hunt:
        """One that was stopped. Raises `InputError` where there is none."""
        data = Evidence(path).read(STATE)
        try:
            quest = data["quest"] | {"steps": [Step(**step) for step in data["quest"]["steps"]]}
            tried = {name: _tried(value) for name, value in data["tried"].items()}
            hunt = cls(path, Quest(**quest), tried)
        except (KeyError, TypeError) as error:
            raise InputError(f"no search in it: {error!r}", where=str(path)) from None
        hunt.question = hunt._question()
        return hunt

    def save(self) -> None:
        """Write down what is known."""
        data = {
            "quest": asdict(self.quest),
            "tried": {name: asdict(tried) for name, tried in self.tried.items()},
        }
        Evidence(self.path).write(STATE, data)

    @property
    def search(self) -> Search:
        """The row of builds with what is known of them; the ends are known."""
        names = [step.name for step in self.quest.steps]
        return Search(names, {name: tried.side for name, tried in self.tried.items()})

    def go(self, probe: Probe, say: Callable[[str], None]) -> None:
        """Try builds until the two sides meet, or nothing is left that can be tried.

        Raises:
            InputError: the two ends do the same.
            LabError: an end cannot be built or run, or one build after another cannot.
        """
        self._ends(probe, say)
        failed = 0
        while name := self.search.next(lambda name: probe.seconds(self._step(name))):
            search = self.search
            say(
                f"{name}: {len(search.open)} between {search.old} and {search.new}, "
                f"at most {search.steps_left()} to try"
            )
            tried = self._try(name, probe)
            self._note(name, tried, say)
            failed = failed + 1 if not tried.runs else 0
            if failed == GIVE_UP:
                raise LabError(
                    f"{GIVE_UP} builds in a row could not be tried: {tried.reason}",
                    where=name,
                    hint=f"see to it, then `rpclab bisect --resume {self.path}`",
                )

    def _ends(self, probe: Probe, say: Callable[[str], None]) -> None:
        """Both ends: what tells them apart, and how often a build must run to be called good."""
        for name, side in ((self.quest.bad, "bad"), (self.quest.good, "good")):
            if name in self.tried:
                continue
            say(f"{name}: the {side} end")
            step = self._step(name)
            try:
                probe.prepare(step)
            except NotBuilt as error:
                raise LabError(f"the {side} end: {error}", where=name) from None
            runs = [self._run(step, probe) for _ in range(self.quest.repeat or FIRST_RUNS)]
            while len({run.mark for run in runs}) > 1 and len(runs) < MOST_RUNS:
                runs.append(self._run(step, probe))
            self._note(name, Tried(side, runs), say)
        good = self.tried[self.quest.good]
        while (asked := self._question()) and len(good.runs) < asked.repeat:
            run = self._run(self._step(self.quest.good), probe)
            good = replace(good, runs=[*good.runs, run])
            self._note(self.quest.good, good, say)
        self.question = asked
        if asked:
            say(f"bad is: {asked.bad}; a build is good after {asked.repeat} runs without it")

    def _question(self) -> Question | None:
        ends = [self.tried.get(name) for name in (self.quest.bad, self.quest.good)]
        if not ends[0] or not ends[1]:
            return None
        marks = [[run.mark for run in end.runs] for end in ends if end]
        return question(marks[0], marks[1], self.quest.repeat)

    def _try(self, name: str, probe: Probe) -> Tried:
        assert self.question is not None  # noqa: S101  (the ends come first)
        step = self._step(name)
        runs: list[Run] = []
        try:
            probe.prepare(step)
            while len(runs) < self.question.repeat and self._side(runs) != "bad":
                runs.append(self._run(step, probe))
        except NotBuilt as error:
            return Tried(None, [], str(error))
        except LabError as error:
            return Tried(None, [], f"the lab failed: {error.what}")
        side = self._side(runs)
        return Tried(side, runs, "" if side else f"neither good nor bad: {runs[-1].words}")

    def _run(self, step: Step, probe: Probe) -> Run:
        """Once more where the lab failed: a moment's trouble is no reason to lose a build."""
        try:
            return probe.run(step)
        except LabError:
            return probe.run(step)

    def _side(self, runs: Sequence[Run]) -> str | None:
        assert self.question is not None  # noqa: S101
        return self.question.side([run.mark for run in runs])

    def _note(self, name: str, tried: Tried, say: Callable[[str], None]) -> None:
        self.tried[name] = tried
        self.save()
        words = tried.reason or (tried.told.words if tried.told else "")
        say(f"{name}: {tried.side or 'says nothing'} ({len(tried.runs)} runs): {words}")

    def _step(self, name: str) -> Step:
        return next(step for step in self.quest.steps if step.name == name)


def _tried(data: dict[str, Any]) -> Tried:
    runs = [Run(**run | {"mark": Mark(**run["mark"])}) for run in data["runs"]]
    return Tried(data["side"], runs, data["reason"])
