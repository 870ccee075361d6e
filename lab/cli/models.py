"""`rpclab models`: the tiny models that scenarios run, and where their files are."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from lab import models, terminal
from lab.errors import InputError
from lab.toml import unknown


def command(
    name: Annotated[
        str | None, typer.Argument(help="A standard model; default: a table of all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Build the standard models, or the one named, and say where their files are.

    With a name the answer is the path alone: `llama-server -m $(rpclab models glm-dsa)`.

    A model is made in a moment and kept in the cache; the same model has the same bytes on every
    machine. Its weights are random, its layer structure is the real one. A prompt of N printable
    ASCII characters is N + 1 tokens, and no answer ends before `n_predict`.
    """
    if name is not None and name not in models.STANDARD:
        raise InputError(unknown("model", name, list(models.STANDARD)), where="rpclab models")
    names = [name] if name is not None else list(models.STANDARD)
    built = {each: models.build(models.STANDARD[each]) for each in names}
    if as_json:
        facts = [_facts(each, model) for each, model in built.items()]
        print(json.dumps(facts[0] if name is not None else facts, indent=1))
    elif name is not None:
        print(built[name].path)
    else:
        _show(built)


def _facts(name: str, model: models.Model) -> dict[str, Any]:
    return {
        "name": name,
        "structure": models.describe(model.spec),
        "spec": model.spec.plain(),
        "bytes": model.size,
        "sha256": model.sha256,
        "path": str(model.path),
    }


def _show(built: dict[str, models.Model]) -> None:
    table = Table("model", "layers", "structure", "MB", "sha256", box=None, pad_edge=False)
    for name, model in built.items():
        structure = model.spec.params.structure()
        size = f"{model.size / 1e6:.1f}"
        table.add_row(name, str(model.layers), structure, size, model.sha256[:12])
    console = terminal.out()
    console.print(table)
    for folder in sorted({model.path.parent for model in built.values()}):
        console.print(
            f"\nfiles: {folder}/<architecture>-<sha256>.gguf", markup=False, soft_wrap=True
        )
