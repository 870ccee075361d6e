"""`rpclab plan`: where a head would put a model's layers, and what is known to go wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lab import terminal
from lab.plan import devices as device_list
from lab.plan import flags as flag_list
from lab.plan import header as headers
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
    scene = Scene.of(header, given, devices)
    told = _facts(scene)
    if suggestions:
        told["suggestions"] = suggest(scene)
    if as_json:
        print(json.dumps(told, indent=1))
    else:
        terminal.out().print(_text(told), markup=False, highlight=False, soft_wrap=True)


def _facts(scene: Scene) -> dict[str, Any]:
    held = scene.plan.per_device()
    memory = {device.name: device.memory for device in scene.devices}
    wide = int(scene.header.key("embedding_length")) * int(
        scene.header.key("hyper_connection.count", 1)
    )
    return {
        "architecture": scene.header.arch,
        "layers": [
            {
                "layer": layer,
                "device": scene.plan.layers[layer],
                "weights": scene.plan.weights.get(str(layer), {}),
                "kv": None if scene.plan.kv[layer] < 0 else scene.plan.kv[layer],
                "recurrent": scene.plan.recurrent[layer],
                "cache_on": scene.plan.cache_on[layer],
            }
            for layer in range(scene.header.layers)
        ],
        "output": scene.plan.layers[-1],
        "devices": {
            name: {
                "memory": memory.get(name),
                **held.get(name, {}),
                "experts": scene.plan.experts.get(name, 0),
            }
            for name in dict.fromkeys([*memory, *held])
        },
        "kv_known": scene.header.arch in KNOWN_KV,
        "borders": [{"before": n, "bytes_per_token": wide * 4} for n in scene.borders],
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


def _text(told: dict[str, Any]) -> str:
    lines = []
    for row in told["layers"]:
        weights = ", ".join(f"{size / 2**20:.2f} on {on}" for on, size in row["weights"].items())
        kv = "?" if row["kv"] is None else f"{row['kv'] / 2**20:.2f}"
        lines.append(
            f"layer {row['layer']:3}  {row['device']:6} weights {weights}; KV {kv}, "
            f"recurrent {row['recurrent'] / 2**20:.2f} on {row['cache_on']}"
        )
    lines += [f"output     {told['output']}", "", "MiB on each device"]
    for name, held in told["devices"].items():
        parts = [f"{kind} {size / 2**20:.2f}" for kind, size in held.items() if size is not None]
        lines.append(f"  {name}: {', '.join(parts)}")
    if not told["kv_known"]:
        lines.append(f"  KV and state of {told['architecture']} are not computed")
    for border in told["borders"]:
        lines.append(
            f"border before layer {border['before']}: "
            f"{border['bytes_per_token']} bytes of activations for each token"
        )
    for warning in told["warnings"]:
        lines.append(
            f"warning: {warning['what']} (#{warning['report']}; builds: {warning['builds']})"
        )
        lines += [f"  limits: {warning['limits']}"] if warning["limits"] else []
    if "suggestions" in told:
        found = told["suggestions"]
        lines.append(
            "suggested: " + "  ".join(f"-ts {ts}" for ts in found)
            if found
            else "suggested: none: every -ts warns, or no rule explains this architecture"
        )
    return "\n".join(lines)
