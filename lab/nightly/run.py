"""Run a night: images, then its turns through pytest-xdist, then the result, however it ended."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import engine, images, terminal
from lab.case import Case, load_cases
from lab.errors import Exit, LabError, NoEngineError
from lab.evidence import Evidence, case_dirs
from lab.images import ImageSpec
from lab.nightly import compare, night, summary
from lab.nightly.budget import machine
from lab.nightly.night import Night, Plan
from lab.nightly.plan import Job
from lab.nightly.plugin import OPTION, Order, Turn
from lab.nightly.result import Attempt, CaseResult, Result, attempt_of
from lab.oracle import compared, reference_case
from lab.plugin import at_once
from lab.session import QUIET, Live

ORDER = "order.json"

OUT_OF_TIME = "the time budget was used up before its image was built"


@dataclass(frozen=True)
class Blocked:
    """Why a case cannot be run, and the word that this makes of it."""

    word: str
    """`skip`: not to be built; `error`: cannot be built; `not run`: no time to build."""
    reason: str


def run(its: Night, plan: Plan, *, parallel: int | None, until: float | None) -> int:
    """Run what is left of a night, write its result, print it; the exit code.

    Args:
        parallel: cases at once at most; None: as many as cores and memory allow.
        until: unix seconds at which to stop.

    Raises:
        NoEngineError: nothing was run.
    """
    began = time.monotonic()
    out = terminal.out()
    engine.client().close()
    cases = {case.id: case for file in plan.files for case in load_cases(Path(file))}
    blocked = _blocked([cases[job.id] for job in plan.jobs], plan, until)
    turns = turns_left(plan.jobs, its.done(), plan.repeat, blocked)
    out.print(f"night: {its.path}: {len(turns)} runs of cases", soft_wrap=True)
    code = int(pytest.ExitCode.OK)
    if turns:
        Order(turns, machine(), until).write(its.path / ORDER)
        options = _options(its, plan, parallel if parallel is not None else at_once(), len(turns))
        code = pytest.main(options, plugins=[Live(out, len(turns))])
    result = collect(its.path, plan, blocked, time.monotonic() - began)
    changes = compare.compare(result, night.history(night.earlier(its.path)))
    summary.write(its.path, result, changes)
    summary.show(out, its.path, result, changes)
    if code == pytest.ExitCode.INTERRUPTED:
        return Exit.INTERRUPTED
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return Exit.ERROR
    return compare.exit_code(result, changes)


def turns_left(
    jobs: Iterable[Job], done: dict[str, int], repeat: int, blocked: Iterable[str] = ()
) -> list[Turn]:
    """What is still to run: every case once before any runs again. Pure."""
    shut = set(blocked)
    open_jobs = [job for job in jobs if job.id not in shut]
    return [
        Turn(job.id, number, job.need, job.seconds)
        for number in range(1, repeat + 1)
        for job in open_jobs
        if number > done.get(job.id, 0)
    ]


def collect(path: Path, plan: Plan, blocked: dict[str, Blocked], seconds: float) -> Result:
    """The result of a night from its evidence, whatever of it is there."""
    attempts: dict[str, list[Attempt]] = {}
    for folder in case_dirs(path):
        if (folder / "verdict.json").is_file():
            evidence = Evidence(folder)
            case = evidence.read("case.json")["id"]
            attempts.setdefault(case, []).append(attempt_of(evidence))
    cases = []
    for job in plan.jobs:
        found, reason = attempts.get(job.id, []), "not reached"
        if not found and (shut := blocked.get(job.id)):
            reason = shut.reason
            found = [Attempt(shut.word, reason, None)] if shut.word != "not run" else []
        cases.append(CaseResult(job.id, job.scenario, job.pin, plan.repeat, found, reason))
    return Result(sorted(cases, key=lambda case: case.id), [], seconds)


def _blocked(cases: list[Case], plan: Plan, until: float | None) -> dict[str, Blocked]:
    """Case id -> why not; builds the images of the others, one at a time."""
    trouble: dict[ImageSpec, Blocked] = {}
    wanted = {spec for case in cases for spec in _images(case)}
    console = terminal.err()
    for spec in sorted(wanted, key=lambda spec: spec.name):
        with console.status(f"image {spec.name}"):
            if found := _trouble(spec, plan, until):
                trouble[spec] = found
    with console.status("image toxiproxy"):
        images.ensure_toxiproxy()
    return {
        case.id: trouble[spec]
        for case in cases
        for spec in sorted(_images(case), reverse=True)
        if spec in trouble
    }


def _trouble(spec: ImageSpec, plan: Plan, until: float | None) -> Blocked | None:
    try:
        why = images.why_rebuild(spec, source=plan.source)
        if why is None:
            return None
        if not plan.build:
            return Blocked("skip", f"image {spec.name} is not to be built (--no-build): {why}")
        if until is not None and time.time() > until:
            return Blocked("not run", OUT_OF_TIME)
        images.ensure(spec, source=plan.source)
    except NoEngineError:
        raise
    except LabError as error:
        return Blocked("error", f"image {spec.name}: {error.what.splitlines()[0]}")
    return None


def _images(case: Case) -> set[ImageSpec]:
    """All that a case needs here; none where it needs another host and is skipped anyway."""
    if case.needs:
        return set()
    return case.images | ({reference_case(case).head} if compared(case) else set())


def _options(its: Night, plan: Plan, at_once: int, turns: int) -> list[str]:
    # A worker takes one case after another, in the night's order: longest first.
    side_by_side = min(turns, at_once)
    parallel = ["-n", str(side_by_side if side_by_side > 1 else 0), "--maxschedchunk", "1"]
    options = ["-p", "lab.nightly.plugin", OPTION, str(its.path / ORDER)]
    options += ["--rpclab-run", str(its.path)]
    options += ["--rpclab-source", plan.source] if plan.source else []
    return [*plan.files, *parallel, *options, *QUIET]
