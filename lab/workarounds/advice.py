"""What a search found, as advice: facts for programs, text for people. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from lab.args import without
from lab.case import Case
from lab.plan.header import Header
from lab.scenario import RPC
from lab.workarounds.hunt import AGAIN, LONG, ONE_WORKER, SLOTS, THIRD, Hunt
from lab.workarounds.knobs import TS, Try
from lab.workarounds.rules import Observation, Rule, explain, scene
from lab.workarounds.splits import splits, words_of
from lab.workarounds.trial import SLOTS as MANY

CURE, ANSWERED, SAME, OTHER, WRONG, ERROR, UNTRIED = (
    "cure",
    "answered, not repeated",
    "same failure",
    "another failure",
    "wrong-output",
    "error",
    "not tried",
)
"""What came of a change. Only a cure is advice."""

Facts = dict[str, Any]


def facts(hunt: Hunt, model: tuple[str, Header] | None = None) -> Facts:
    """All that was found.

    Args:
        model: a real model's file and header, for which a command line is wanted as well.
    """
    case = hunt.ground.case
    rows = [_row(hunt, it) for it in hunt.tries]
    rule = explain(observations(hunt))
    # The cheapest; of a knob's settings the first, which for splits is the most even.
    cures = sorted((it for it in hunt.tries if hunt.repeated(it)), key=lambda it: it.cost)
    found: Facts = {
        "case": case.id,
        "control": [
            {"words": r.words, "path": r.path}
            for name, r in hunt.results.items()
            if name.startswith("control")
        ],
        "changes": rows,
        "rule": None if rule is None else {"name": rule.name, "says": rule.says},
        "observations": len(observations(hunt)),
        "command": commands(cures[0].case, "MODEL.gguf") if cures else None,
    }
    if model:
        name, header = model
        found["for"] = {"model": name, **_for(cures, rule, name, header)}
    return found


def observations(hunt: Hunt) -> list[Observation]:
    """The placements that were tried with the case's own images."""
    ground = hunt.ground
    seen = []
    if control := hunt.results.get("control"):
        its = scene(ground.case, ground.header)
        seen.append(Observation("as it is", its, control.cured))
    for it in hunt.singles:
        result = hunt.results.get(it.key)
        # Others change what is computed, or on what; a rule of placement says nothing of them.
        if result and it.places and result.mark.outcome != "error":
            its = scene(it.case, ground.header)
            seen.append(Observation(it.words, its, hunt.answered(it)))
    return seen


def _row(hunt: Hunt, it: Try) -> Facts:
    runs = hunt.of(it)
    failed = next(((stage, r) for stage, r in runs.items() if not r.cured), None)
    told = failed[1] if failed else runs.get("")
    return {
        "change": it.words,
        "knob": it.knob,
        "cost": it.cost.words,
        "result": _result(hunt, it),
        "outcome": told.words if told else hunt.why_not(it.case) or "the time was used up",
        "at": failed[0] if failed else None,
        "runs": len(runs),
        "tokens_per_second": runs[LONG].speed if LONG in runs else None,
        "of_one_worker": _ratio(hunt, it),
        "evidence": [r.path for r in runs.values()],
    }


def _result(hunt: Hunt, it: Try) -> str:
    runs = hunt.of(it)
    marks = [r.mark for r in runs.values() if not r.cured]
    if not runs:
        return UNTRIED
    if not marks:
        return CURE if hunt.repeated(it) else ANSWERED
    if marks[0].outcome in (WRONG, ERROR):
        return marks[0].outcome
    return SAME if marks[0] == hunt.control else OTHER


def _ratio(hunt: Hunt, it: Try) -> float | None:
    one, its = hunt.results.get(ONE_WORKER), hunt.of(it).get(LONG)
    if not one or not its or not one.cured or not one.speed or not its.speed:
        return None
    return its.speed / one.speed


def commands(case: Case, model: str) -> list[str]:
    """The command lines that an operator types: the head's, and the workers' where they have some
    of their own."""
    rpc = ["--rpc", ",".join(f"WORKER{n}:PORT" for n in range(1, len(case.workers) + 1))]
    args = list(case.args)
    at = args.index(RPC) if RPC in args else 0
    args = [*args[:at], *rpc, *args[at + (RPC in args) :]]
    draft = ["-md", "DRAFT.gguf"] if case.draft else []
    lines = [shlex.join(["llama-server", "-m", model, *draft, *args])]
    if "-d" in case.worker_args:
        lines.append(shlex.join(["ggml-rpc-server", "-H", "...", *case.worker_args]))
    return lines


def _for(cures: Sequence[Try], rule: Rule | None, name: str, header: Header) -> Facts:
    """The best cure for another model: a split by the rule, any other change as it is."""
    for it in cures:
        if it.knob == "ts":
            if rule and (case := _split(it.case, rule, header)):
                return {"change": _ts(case), "command": commands(case, name), "by": rule.says}
        elif it.knob != "ngl":
            return {"change": it.words, "command": commands(it.case, name), "by": None}
    return {"change": None, "command": None, "by": None}


def _split(case: Case, rule: Rule, header: Header) -> Case | None:
    """The most even split of the model that the rule allows."""
    if not rule.applies(header):
        return None
    for shares in splits(header, len(case.workers)):
        its = replace(case, args=(*without(case.args, TS), "-ts", words_of(shares)))
        if rule.holds(scene(its, header)):
            return its
    return None


def _ts(case: Case) -> str:
    return f"-ts {case.args[-1]}"


def text(found: Facts) -> Iterable[str]:
    """The advice."""
    control = found["control"][0]["words"] if found["control"] else "not run"
    yield f"{found['case']}: {control}"
    for result, title in SECTIONS:
        rows = [row for row in found["changes"] if row["result"] == result]
        if not rows:
            continue
        yield ""
        yield title
        for row in rows:
            yield "  " + _line(row)
    yield ""
    seen = found["observations"]
    if found["rule"]:
        yield f"rule: {found['rule']['says']} (explains all of {seen} placements)"
    else:
        yield f"rule: no rule found that explains all of {seen} placements"
    for line in found["command"] or []:
        yield f"try: {line}"
    if "for" in found:
        its = found["for"]
        for line in its["command"] or []:
            yield f"for {its['model']}: {line}"
        if not its["command"]:
            yield f"for {its['model']}: no cure that carries over"


SECTIONS = (
    (CURE, f"cures: right output, three times, with {MANY} requests at once, with a long prompt"),
    (ANSWERED, "answered rightly, but was not repeated"),
    (WRONG, "no cure: answers wrongly"),
    (OTHER, "no cure: fails in another way"),
    (SAME, "no cure: the same failure"),
    (ERROR, "the lab itself failed"),
    (UNTRIED, "not tried"),
)


AT = {
    AGAIN: "the second time: ",
    THIRD: "the third time: ",
    SLOTS: f"with {MANY} requests at once: ",
    LONG: "with a long prompt: ",
}
"""Where a change failed that had answered at first."""


def _line(row: Facts) -> str:
    words = f"{row['change']:34} {row['cost']:22}"
    if row["result"] == CURE:
        speed = row["tokens_per_second"]
        share = f", {row['of_one_worker']:.2f} of one worker" if row["of_one_worker"] else ""
        return f"{words} {speed:.0f} tokens/s{share}" if speed else words.rstrip()
    if row["result"] in (SAME, ANSWERED):
        return words.rstrip() + (f" ({row['at']})" if row["at"] else "")
    return f"{words} {AT.get(row['at'] or '', '')}{row['outcome']}"
