"""Runs a case on builds, on the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import images, pins
from lab.bisect.run import NotBuilt, Run
from lab.bisect.search import COMPILE, WARM
from lab.bisect.steps import Step
from lab.case import Case
from lab.errors import InputError, LabError, NoEngineError
from lab.evidence import Evidence
from lab.images import ImageSpec
from lab.mark import Mark
from lab.oracle import compared, reference_case
from lab.outcome import classify
from lab.pins import Pin
from lab.runner import Runner
from lab.sources import Kind
from lab.toml import unknown


class CaseProbe:
    """Runs one case with its pin replaced.

    Args:
        runner: its run is the search's directory, where the evidence goes.
        build: False: only builds whose images are there.
    """

    def __init__(self, case: Case, source: Kind, runner: Runner, *, build: bool) -> None:
        self._case, self._source, self._runner, self._may_build = case, source, runner, build
        self._cases: dict[str, Case] = {}

    def seconds(self, step: Step) -> float | None:
        """Little where all images are there."""
        if not self._missing(step):
            return WARM
        return COMPILE if self._may_build else None

    def prepare(self, step: Step) -> None:
        """Build its images. Raises `NotBuilt`."""
        missing = self._missing(step)
        if missing and not self._may_build:
            raise NotBuilt(f"{missing[0].name} is not there, and not to be built (--no-build)")
        try:
            for spec in missing:
                images.ensure(spec, source=self._source)
        except NoEngineError:
            raise
        except LabError as error:
            raise NotBuilt(f"cannot be built: {error.what.splitlines()[0]}") from None

    def run(self, step: Step) -> Run:
        """One run, its evidence in the search's directory."""
        verdict, path = self._runner.run_case(self._case_on(step))
        if verdict.verdict not in ("pass", "fail"):
            raise LabError(verdict.reason, where=str(path))
        outcome = classify(Evidence(path))
        return Run(Mark.of(outcome), outcome.words(), outcome.line)

    def _missing(self, step: Step) -> list[ImageSpec]:
        case = self._case_on(step)
        return [spec for spec in _images(case) if images.why_rebuild(spec, source=self._source)]

    def _case_on(self, step: Step) -> Case:
        if step.name not in self._cases:
            pins.add_pin(step.pin())
            self._cases[step.name] = self._warmest(step)
        return self._cases[step.name]

    def _warmest(self, step: Step) -> Case:
        """With a pin of the project whose images of this very build are there, if one has."""
        for pin in pins.load_pins().values():
            if self._source == "sdist" and _is(pin, step):
                case = on(self._case, pin.id)
                if not any(images.why_rebuild(s, source=self._source) for s in _images(case)):
                    return case
        return on(self._case, step.name)


@contextmanager
def probe(case: Case, source: Kind, path: Path, *, build: bool) -> Iterator[CaseProbe]:
    """A probe; nothing of it is left on the engine."""
    images.ensure_toxiproxy()
    runner = Runner(path, source=source)
    try:
        yield CaseProbe(case, source, runner, build=build)
    finally:
        runner.close()


def on(case: Case, pin: str) -> Case:
    """The case on another pin. Pure."""
    return dataclasses.replace(
        case,
        id=case.id.replace(case.head.pin, pin),
        head=dataclasses.replace(case.head, pin=pin),
        workers=tuple(dataclasses.replace(spec, pin=pin) for spec in case.workers),
    )


def chosen(cases: list[Case], name: str, where: str) -> Case:
    """The case of a scenario that a name without its pin means: `glm-dsa-2w`. Pure.

    Raises:
        InputError: there is none; or the rows of different pins ask for different things.
    """
    exact = [case for case in cases if name in (case.id, case.slug)]
    found = exact or [case for case in cases if name == short(case)]
    if not found:
        known = sorted({short(case) for case in cases})
        raise InputError(unknown("case", name, known), where=where)
    if len({_asked(case) for case in found}) > 1:
        raise InputError(
            f"{name} is not the same on every pin",
            where=where,
            hint=f"name one in full: {', '.join(case.slug for case in found)}",
        )
    return found[0]


def short(case: Case) -> str:
    """A case's name without its pin."""
    return case.slug.replace(f"-{case.head.pin}", "")


def _asked(case: Case) -> str:
    """What is asked of llama.cpp, whatever the pin and what is expected."""
    plain = dataclasses.replace(on(case, "-"), expect=None, why="", budget=None)  # type: ignore[arg-type]
    return repr(plain)


def _is(pin: Pin, step: Step) -> bool:
    return pin.sdist is not None and step.name == f"b{pin.sdist.build}"


def _images(case: Case) -> list[ImageSpec]:
    return sorted(case.images | ({reference_case(case).head} if compared(case) else set()))
