"""The search for what cures a case: what to try next, and what is known. Kept on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from lab.args import without
from lab.case import Case
from lab.errors import InputError, LabError
from lab.evidence import Evidence
from lab.mark import Mark
from lab.oracle import PLACEMENT
from lab.workarounds.knobs import KNOBS, Ground, Knob, Try, pairs, singles
from lab.workarounds.trial import Result, in_slots, long

STATE = "workarounds.json"
CONTROLS = ("control", "control again")
ONE_WORKER = "one worker"
AGAIN, THIRD, SLOTS, LONG = "again", "third", "slots", "long"
"""What a change is put through after its first right answer. `long` is run alone, for its speed."""
STAGES = (AGAIN, THIRD, SLOTS, LONG)
MOST_REPEATED = 4
"""Settings of one knob that are repeated, the first of its table that answered."""
MOST_PAIRS = 30


SLOTS_FLAGS = ("-np", "--parallel")


class Runs(Protocol):
    """Runs cases."""

    def run(
        self, cases: Sequence[tuple[str, Case]], *, alone: bool = False
    ) -> Iterator[tuple[str, Result]]:
        """(key, case) -> (key, what came of it), as they end."""


@dataclass(frozen=True)
class Quest:
    """What is asked: fixed at the start."""

    scenario: str
    """The scenario's file."""
    case: str
    """Its slug."""
    knobs: list[str]
    """Names of those that may be turned."""


@dataclass
class Hunt:
    """A search under way, and its directory."""

    path: Path
    quest: Quest
    ground: Ground
    why_not: Callable[[Case], str | None]
    """Why a case cannot be run here, such as an image that is not there."""
    table: Sequence[Knob] = KNOBS
    results: dict[str, Result] = field(default_factory=dict)
    """Control, try, or try and stage -> what came of it."""

    def load(self) -> None:
        """What an earlier start found. Raises `InputError` where that was another lab's format."""
        data: dict[str, Any] = Evidence(self.path).read(STATE)
        try:
            self.results = {key: Result.load(value) for key, value in data["results"].items()}
        except (KeyError, TypeError) as error:
            raise InputError(f"no such search in it: {error!r}", where=str(self.path)) from None

    def save(self) -> None:
        """Write down what is known."""
        results = {key: asdict(result) for key, result in self.results.items()}
        Evidence(self.path).write(STATE, {"quest": asdict(self.quest), "results": results})

    @property
    def knobs(self) -> list[Knob]:
        """Those that may be turned."""
        return [knob for knob in self.table if knob.name in self.quest.knobs]

    @property
    def singles(self) -> list[Try]:
        """One knob turned."""
        return singles(self.knobs, self.ground)

    @property
    def pairs(self) -> list[Try]:
        """Two turned; none where one alone, with the case's own images, answers."""
        if any(self.answered(it) for it in self.singles if it.cost.has_images):
            return []
        return pairs(self.knobs, self.ground)[:MOST_PAIRS]

    @property
    def tries(self) -> list[Try]:
        """All there is to try."""
        return [*self.singles, *self.pairs]

    def answered(self, it: Try) -> bool:
        """It was run and answered rightly, each time so far."""
        return it.key in self.results and all(r.cured for r in self.of(it).values())

    def of(self, it: Try) -> dict[str, Result]:
        """Stage -> result, the first time being the stage ``."""
        keys = {"": it.key} | {stage: f"{it.key} ({stage})" for stage in STAGES}
        return {stage: self.results[key] for stage, key in keys.items() if key in self.results}

    def repeated(self, it: Try) -> bool:
        """A cure: it answered three times, and with a long prompt in each of several slots."""
        return self.answered(it) and len(self.of(it)) == len(STAGES) + 1

    def go(self, runs: Runs, say: Callable[[str], None]) -> None:
        """Try, then repeat what answered.

        Raises:
            InputError: the case itself answers, so that there is nothing to work around.
            LabError: the case itself cannot be run.
        """
        case = self.ground.case
        if reason := self.why_not(case):
            raise LabError(reason, where=case.id, hint="build it: leave --no-build out")
        self._run("the case itself", [(name, case) for name in CONTROLS], runs, say)
        self._fails(case)
        self._run("one change", self._runnable(self.singles), runs, say)
        self._run("two changes", self._runnable(self.pairs), runs, say)
        cures = self._to_repeat()
        again = [(f"{it.key} ({stage})", it.case) for it in cures for stage in (AGAIN, THIRD)]
        slots = [(f"{it.key} ({SLOTS})", in_slots(it.case)) for it in cures]
        self._run("three times, and in slots", again + slots, runs, say)
        cures = [it for it in cures if self.answered(it)]
        alone = [(f"{it.key} ({LONG})", long(it.case)) for it in cures]
        if cures and len(case.workers) > 1:
            alone.append((ONE_WORKER, long(one_worker(case))))
        self._run("a long prompt, alone", alone, runs, say, alone=True)

    @property
    def control(self) -> Mark | None:
        """What the case itself does."""
        found = self.results.get(CONTROLS[0])
        return found.mark if found else None

    def _fails(self, case: Case) -> None:
        controls = [self.results[name] for name in CONTROLS if name in self.results]
        for result in controls:
            if result.mark.outcome == "error":
                raise LabError(f"the case itself: {result.words}", where=result.path)
            if result.cured:
                raise InputError(
                    "the case answers, and rightly: there is nothing to work around",
                    where=case.id,
                    hint="name a case that crashes, hangs or answers wrongly: `rpclab list`",
                )

    def _runnable(self, tries: Sequence[Try]) -> list[tuple[str, Case]]:
        return [(it.key, it.case) for it in tries if self.why_not(it.case) is None]

    def _to_repeat(self) -> list[Try]:
        count: Counter[str] = Counter()
        found = []
        for it in self.tries:
            if self.answered(it):
                count[it.knob] += 1
                found += [it] if count[it.knob] <= MOST_REPEATED else []
        return found

    def _run(
        self,
        title: str,
        cases: Sequence[tuple[str, Case]],
        runs: Runs,
        say: Callable[[str], None],
        *,
        alone: bool = False,
    ) -> None:
        left = [(key, case) for key, case in cases if key not in self.results]
        if not left:
            return
        say(f"{title}: {len(left)} to run")
        for done, (key, result) in enumerate(runs.run(left, alone=alone), 1):
            self.results[key] = result
            self.save()
            say(f"{done:3}/{len(left)} {key}: {result.words}")


def one_worker(case: Case) -> Case:
    """The case with the first of its workers alone: what speeds are held against."""
    args = case.args if case.right is None else case.right
    plain = {flag: values for flag, values in PLACEMENT.items() if flag not in SLOTS_FLAGS}
    return replace(
        case,
        id=f"{case.scenario}[{case.slug} one-worker]",
        args=without(args, plain),
        workers=case.workers[:1],
        right=args,
    )
