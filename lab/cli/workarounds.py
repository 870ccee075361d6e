"""`rpclab workarounds`: what an operator can change so that a failing case works."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from lab import engine, evidence, images, models, paths, terminal
from lab.bisect.probe import chosen
from lab.case import Case, find, load_cases
from lab.errors import Exit, InputError
from lab.oracle import reference_case
from lab.plan import header as headers
from lab.plugin import at_once
from lab.pool import Pool
from lab.toml import unknown
from lab.workarounds import advice
from lab.workarounds.hunt import STATE, Hunt, Quest
from lab.workarounds.knobs import KNOBS, Ground
from lab.workarounds.trial import Trials


def command(
    scenario: Annotated[str | None, typer.Argument(help="Report number or scenario file.")] = None,
    case: Annotated[str, typer.Option(help="Its case, in full: `glm-dsa-2w-f1793c1c4`.")] = "",
    knob: Annotated[
        list[str] | None,
        typer.Option(help=f"Only these: {', '.join(k.name for k in KNOBS)}; may be repeated."),
    ] = None,
    for_model: Annotated[
        Path | None,
        typer.Option("--for", help="A real model (GGUF): the command line for it as well."),
    ] = None,
    minutes: Annotated[
        float, typer.Option("--budget", min=0, help="Minutes after which nothing new is begun.")
    ] = 10,
    parallel: Annotated[
        int | None, typer.Option("-n", min=1, help="Cases at once; default: cores and memory.")
    ] = None,
    build: Annotated[
        bool,
        typer.Option("--build", help="Build the images that knobs need; else they are not tried."),
    ] = False,
    resume: Annotated[
        str | None, typer.Option(help="Go on with a search: its directory, or `last`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Find what makes a failing case work, and answer rightly, without new hardware.

    Turns one knob after another, those that cost the user least first: flags, splits of the layers,
    memory on the head, fewer workers, other backends, source edits, other builds; two at once where
    no single one helps. What answers is repeated, also with long prompts in several slots, and
    its speed taken. Only what answers as one machine with no RPC does, each time, is called a cure.

    Exits 0 where there is a cure, 1 where none was found.

    Example: `rpclab workarounds 28047 --case glm-dsa-2w-f1793c1c4 --for GLM-5.3.gguf`
    """
    model = (str(for_model), headers.read(for_model)) if for_model else None
    if resume is not None:
        if any((scenario, case, knob)):
            raise InputError(
                "the question was asked at the beginning",
                where="--resume",
                hint="give --budget, --for, --build, -n only, or begin a new search",
            )
        path = _last() if resume == "last" else Path(resume)
        quest = _quest(path)
    else:
        quest = _ask(scenario, case, knob or [])
        path = None
    its = chosen(load_cases(Path(quest.scenario)), quest.case, quest.scenario)
    if not its.workers:
        raise InputError("it has no workers: there is no RPC to work around", where=its.id)
    engine.client().close()
    ground = Ground(its, headers.read(models.build(its.model).path))
    fresh = path is None
    path = path or evidence.new_run(paths.runs() / "workarounds", f"{its.scenario}-{its.slug}")
    hunt = Hunt(path, quest, ground, _why_not)
    hunt.save() if fresh else hunt.load()
    err, out = terminal.err(), terminal.out()
    err.print(f"search: {path}", soft_wrap=True)

    def say(line: str) -> None:
        err.print(line, markup=False, soft_wrap=True)

    deadline = time.monotonic() + minutes * 60
    _prepare(hunt, build)
    with Pool(path, parallel or at_once(), deadline) as pool:
        hunt.go(Trials(pool), say)
    found = advice.facts(hunt, model)
    lines = list(advice.text(found))
    evidence.Evidence(path).write("advice.json", found)
    evidence.Evidence(path).write_text("advice.txt", "\n".join(lines) + "\n")
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        for line in lines:
            out.print(line, markup=False, soft_wrap=True)
        out.print(f"evidence: {path}", soft_wrap=True)
    raise typer.Exit(Exit.OK if found["command"] else Exit.FAIL)


def _ask(scenario: str | None, case: str, knobs: list[str]) -> Quest:
    for name, value in (("a scenario", scenario), ("--case", case)):
        if not value:
            raise InputError(
                f"{name} is missing", hint="`rpclab workarounds --help` has an example"
            )
    known = [k.name for k in KNOBS]
    for name in knobs:
        if name not in known:
            raise InputError(unknown("knob", name, known), where="--knob")
    file = find(str(scenario)).resolve()
    its = chosen(load_cases(file), case, str(file))
    return Quest(str(file), its.slug, knobs or known)


def _quest(path: Path) -> Quest:
    data = evidence.Evidence(path).read(STATE)
    try:
        return Quest(**data["quest"])
    except (KeyError, TypeError):
        raise InputError(f"no search in it ({STATE})", where=str(path)) from None


def _why_not(case: Case) -> str | None:
    """Why a case cannot be run here: an image that is not there."""
    for spec in sorted(case.images | {reference_case(case).head}):
        if why := images.why_rebuild(spec):
            return f"{spec.name}: {why}"
    return None


def _prepare(hunt: Hunt, build: bool) -> None:
    images.ensure_toxiproxy()
    for spec in sorted({s for it in hunt.singles for s in it.case.images}) if build else []:
        images.ensure(spec)


def _last() -> Path:
    for file in sorted((paths.runs() / "workarounds").glob(f"*/{STATE}"), reverse=True):
        return file.parent
    raise InputError(
        "no search that could go on",
        where=str(paths.runs() / "workarounds"),
        hint="begin a new one",
    )
