"""A night for people and for programs: tables, Markdown, JSON, JUnit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as xml

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab.evidence import Evidence
from lab.nightly.compare import Change, Kind
from lab.nightly.result import RESULT, WORDS, CaseResult, Result
from lab.report import COLOURS

JUNIT, MARKDOWN = "junit.xml", "summary.md"

STYLES = COLOURS | {"flaky": "magenta", "not run": "yellow"}


def write(night: Path, result: Result, changes: Sequence[Change]) -> None:
    """`result.json`, `junit.xml` and `summary.md` beside the evidence."""
    evidence = Evidence(night)
    told = Result(result.cases, [change.to_json() for change in changes], result.seconds)
    evidence.write_text(MARKDOWN, markdown(result, changes))
    evidence.write_text(JUNIT, junit(result))
    # Last: a night with a result has all of it.
    evidence.write(RESULT, told.to_json())


def grid(result: Result) -> tuple[list[str], list[str], dict[tuple[str, str], Counter[str]]]:
    """Scenarios, pins, and (scenario, pin) -> word -> cases."""
    cells: dict[tuple[str, str], Counter[str]] = {}
    for case in result.cases:
        cells.setdefault((case.scenario, case.pin), Counter())[case.word] += 1
    scenarios = sorted({scenario for scenario, _ in cells})
    pins = sorted({pin for _, pin in cells})
    return scenarios, pins, cells


def show(console: Console, night: Path, result: Result, changes: Sequence[Change]) -> None:
    """The table, what went wrong, and what changed."""
    scenarios, pins, cells = grid(result)
    table = Table("scenario", *pins, box=None, pad_edge=False)
    for scenario in scenarios:
        table.add_row(scenario, *(_cell(cells.get((scenario, pin))) for pin in pins))
    console.print(table)
    for case in _troubled(result):
        console.print(
            f"{case.word} {case.id}: {case.words()}",
            style=STYLES[case.word],
            markup=False,
            soft_wrap=True,
        )
    for change in changes:
        if change.kind is not Kind.FLAKY:  # told above
            console.print(_told(change), style="red", markup=False, soft_wrap=True)
    if not changes:
        console.print("nothing changed since each case ran last")
    counts = result.counts()
    console.print(", ".join(f"{counts[word]} {word}" for word in WORDS), style="bold")
    console.print(f"all in all {result.seconds:.0f} s; {night}/{MARKDOWN}, {JUNIT}, {RESULT}")


def markdown(result: Result, changes: Sequence[Change]) -> str:
    """The same as a page."""
    scenarios, pins, cells = grid(result)
    counts = result.counts()
    lines = [", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word]), ""]
    lines += [f"| scenario | {' | '.join(pins)} |", "|---" * (len(pins) + 1) + "|"]
    for scenario in scenarios:
        row = (_plain(cells.get((scenario, pin))) for pin in pins)
        lines.append(f"| {scenario} | {' | '.join(row)} |")
    lines += ["", "## Changes", ""]
    lines += [f"- {_told(change)}" for change in changes] or ["None."]
    if troubled := _troubled(result):
        lines += ["", "## Neither passed nor skipped", ""]
        lines += [f"- **{case.word}** `{case.id}`: {case.words()}" for case in troubled]
    skipped = Counter(case.words() for case in result.cases if case.word == "skip")
    if skipped:
        lines += ["", "## Skipped", ""]
        lines += [f"- {count}: {reason}" for reason, count in sorted(skipped.items())]
    return "\n".join(lines) + "\n"


def junit(result: Result) -> str:
    """One test case for each case; a flake is a failure of type `flaky`, not run is skipped."""
    counts = result.counts()
    suite = xml.Element(
        "testsuite",
        name="rpclab nightly",
        tests=str(len(result.cases)),
        failures=str(counts["fail"] + counts["flaky"]),
        errors=str(counts["error"]),
        skipped=str(counts["skip"] + counts["not run"]),
        time=f"{result.seconds:.1f}",
    )
    tags = {"fail": "failure", "flaky": "failure", "error": "error"}
    for case in result.cases:
        total = sum(attempt.seconds or 0 for attempt in case.attempts)
        test = xml.SubElement(
            suite, "testcase", classname=case.scenario, name=case.id, time=f"{total:.2f}"
        )
        if case.word == "pass":
            continue
        note = xml.SubElement(test, tags.get(case.word, "skipped"), message=case.words())
        if case.word in tags:
            note.set("type", case.word)
            note.text = "\n".join(
                f"{a.verdict}: {a.reason}; log: {a.line or '(no log line)'}; evidence: {a.evidence}"
                for a in case.attempts
            )
    xml.indent(suite)
    return xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _troubled(result: Result) -> list[CaseResult]:
    return [case for case in result.cases if case.word not in ("pass", "skip")]


def _told(change: Change) -> str:
    was = f"{change.before} -> " if change.before else ""
    return f"{change.kind.title}: {change.case}: {was}{change.now}"


def _cell(counts: Counter[str] | None) -> str:
    if counts is None:
        return ""
    words = (word for word in WORDS if counts[word])
    return escape(" ").join(f"[{STYLES[word]}]{counts[word]} {word}[/]" for word in words)


def _plain(counts: Counter[str] | None) -> str:
    return ", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word]) if counts else ""
