"""`rpclab plan`: where a head would put a model's layers, and what is known to go wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lab import terminal
from lab.errors import InputError
from lab.plan import devices as device_list
from lab.plan import flags as flag_list
from lab.plan import header as headers
from lab.plan.cache import RULES
from lab.plan.devices import Device
from lab.plan.suggest import suggest
from lab.plan.warnings import Scene, warnings


def command(
    model: Annotated[Path, typer.Argument(help="A GGUF file; of a split one, any part.")],
    flags: Annotated[
        list[str] | None, typer.Argument(help="After --: llama-server's flags.")
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(help="RPC0=host:port,120G[,topk=1024], or a file of --list-devices."),
    ] = None,
    suggestions: Annotated[
        bool, typer.Option("--suggest", help="-ts values that raise no warning.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Say which device would hold which layer, how much, and what is known to break there.

    Reads the file's header alone. Needs no engine and no llama.cpp. Paste the whole command line of
    llama-server behind `--`: what places nothing is passed over. Sizes are held against heads of
    b10705 on CPU workers (`make plan-grid`); compute buffers are not counted.

    Example: `rpclab plan model.gguf --device RPC0=10.0.0.2:50052,120G
    --device RPC1=10.0.0.3:50052,120G -- -ngl 99 -ts 3,4 -c 65536`
    """
    header = headers.read(model)
    devices = device_list.parse(device or [])
    given = flag_list.parse(flags or [])
    _check_endpoints(given.endpoints, devices)
    scene = Scene.of(header, given, devices)
    told = _facts(scene)
    if suggestions:
        told["suggestions"] = suggest(scene)
    if as_json:
        print(json.dumps(told, indent=1))
    else:
        terminal.out().print(_text(told), markup=False, highlight=False, soft_wrap=True)


def _check_endpoints(endpoints: tuple[str, ...], devices: list[Device]) -> None:
    """The head names its devices after the servers of `--rpc`, in that order."""
    given = list(dict.fromkeys(device.endpoint for device in devices))
    if endpoints and list(endpoints) != given:
        raise InputError(
            f"the head has {','.join(endpoints)}, --device names {','.join(given)}",
            where="--rpc",
            hint="give a --device for each server, in the order of --rpc",
        )


def _facts(scene: Scene) -> dict[str, Any]:
    header, plan = scene.header, scene.plan
    held = plan.per_device()
    memory = {device.name: device.memory for device in scene.devices}
    streams = int(header.key("hyper_connection.count", 1))
    wide = int(header.key("embedding_length")) * streams
    known = plan.caches is not None
    return {
        "architecture": header.arch,
        "layers": [
            {
                "layer": layer,
                "device": plan.layers[layer],
                "weights": plan.weights.get(str(layer), {}),
                **{kind: plan.held(kind, layer) if known else None for kind in KINDS},
                "cache_on": plan.cache_on[layer],
            }
            for layer in range(header.layers)
        ],
        "output": plan.layers[-1],
        "devices": {
            name: {
                "memory": memory.get(name),
                **held.get(name, {}),
                "experts": plan.experts.get(name, 0),
            }
            for name in dict.fromkeys([*memory, *held])
        },
        "caches_known": known,
        "caches": [
            {"kind": c.kind, "name": c.name, "cells": c.cells, "streams": c.streams}
            for c in plan.caches or []
            if c.layers
        ],
        "borders": [{"before": n, "bytes_per_token": wide * 4} for n in scene.borders],
        "assumed": list(scene.flags.said),
        "warnings": [
            {
                "rule": rule.name,
                "report": rule.report,
                "builds": rule.builds,
                "what": line,
                "limits": rule.limits,
            }
            for rule, line in warnings(scene)
        ],
    }


KINDS = ("kv", "recurrent", "compressor")


def _text(told: dict[str, Any]) -> str:
    lines = [_layer(row) for row in told["layers"]]
    lines += [f"output     {told['output']}", "", "MiB on each device"]
    for name, held in told["devices"].items():
        parts = [f"{kind} {_mib(size)}" for kind, size in held.items() if size is not None]
        lines.append(f"  {name}: {', '.join(parts)}")
    if not told["caches_known"]:
        known = ", ".join(RULES)
        lines.append(
            f"  caches of {told['architecture']} are not computed and not counted (known: {known})"
        )
    for border in told["borders"]:
        what = (
            "the output" if border["before"] == len(told["layers"]) else f"layer {border['before']}"
        )
        lines.append(
            f"border before {what}: {border['bytes_per_token']} bytes of activations for each token"
        )
    for warning in told["warnings"]:
        number = f"#{warning['report']}; " if warning["report"] else ""
        lines.append(f"warning: {warning['what']} ({number}builds: {warning['builds']})")
        lines += [f"  limits: {warning['limits']}"] if warning["limits"] else []
    lines += [f"assumed: {remark}" for remark in told["assumed"]]
    if "suggestions" in told:
        found = told["suggestions"]
        lines.append(
            "suggested: " + "  ".join(f"-ts {ts}" for ts in found)
            if found
            else "suggested: none: every -ts over these devices warns"
        )
    return "\n".join(lines)


def _layer(row: dict[str, Any]) -> str:
    weights = ", ".join(f"{_mib(size)} on {on}" for on, size in row["weights"].items())
    held = [f"{kind} {_mib(row[kind])}" for kind in KINDS if row[kind]]
    if row["kv"] is None:
        held = ["caches ?"]
    caches = f"; {', '.join(held)} on {row['cache_on']}" if held else ""
    return f"layer {row['layer']:3}  {row['device']:6} weights {weights}{caches}"


def _mib(size: int) -> str:
    return f"{size / 2**20:.2f}"
