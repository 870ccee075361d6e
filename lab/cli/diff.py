"""`rpclab diff`: what two cases did differently."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from lab import terminal
from lab.errors import InputError
from lab.evidence import Evidence
from lab.outcome import classify

ASKED = ("ran", "model.name", "workers", "args", "worker_args", "workload", "link")
"""Of `case.json`: what was asked for."""


def command(
    one: Annotated[Path, typer.Argument(help="A case's evidence directory.")],
    other: Annotated[Path, typer.Argument(help="Another's.")],
) -> None:
    """Say what two cases were asked, what they did, and where the difference began.

    Reads what the head logged about placement: buffer sizes for each device, and layers whose
    fused operations sit on another device. Needs no engine.

    Example: `rpclab diff runs/RUN/glm-dsa-2w-f1793c1c4 runs/RUN/glm-dsa-2w-f1793c1c4-ts2-5`
    """
    left, right = _flat(one), _flat(other)
    table = Table("", one.name, other.name, box=None, pad_edge=False)
    for key in dict.fromkeys([*left, *right]):
        if left.get(key) != right.get(key):
            cells = (key, left.get(key), right.get(key))
            table.add_row(*(escape(_text(cell)) for cell in cells))
    console = terminal.out()
    if not table.row_count:
        console.print("no difference")
        return
    console.print(table)


def _flat(path: Path) -> dict[str, Any]:
    """What is compared, one entry for each line of the table."""
    evidence = Evidence(path)
    case = evidence.read("case.json")
    if case is None:
        raise InputError("no case in it (no case.json)", where=str(path))
    outcome = classify(evidence)
    flat = {key: _at(case, key) for key in ASKED}
    for kind, held in outcome.facts["buffers"].items():
        flat |= {f"{kind} on {device}, MiB": size for device, size in held.items()}
    for fact in outcome.facts["misplaced"]:
        name = f"layer {fact['layer']}, {fact['what']}"
        flat[name] = f"layer on {fact['device']}, operation on {fact['on']}"
    return flat | {"outcome": outcome.words(), "line": outcome.line}


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _at(data: dict[str, Any], key: str) -> Any:
    for part in key.split("."):
        data = data.get(part, {})
    return data
