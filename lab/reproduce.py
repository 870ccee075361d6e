"""`reproduce.sh`: the case with plain llama.cpp binaries and its model; no container, no Python."""

from __future__ import annotations

import json
import shlex

from lab.scenario import Case
from lab.topology import LINK_PORT, Plan
from lab.workload import payload

HTTP_PORT = 18080


def script(case: Case, plan: Plan, ran: str) -> str:
    """The text of the script. `ran` says which source and build the case really ran."""
    ports = [LINK_PORT + i for i in range(1, plan.workers + 1)]
    args = " ".join(_on_loopback(arg, plan) for arg in plan.head_args)
    rpc = f"--rpc {','.join(f'127.0.0.1:{port}' for port in ports)} " if ports else ""
    worker_args = shlex.join(plan.worker_args)
    bodies = [
        json.dumps(payload(case.workload, i) | {"stream": False})
        for i in range(case.workload.requests)
    ]
    sends = [f"send {shlex.quote(body)}{' &' if case.workload.together else ''}" for body in bodies]
    if case.workload.together:
        sends = [f"{send} clients+=($!)" for send in sends] + ['wait "${clients[@]}"']
    lines = [
        "#!/usr/bin/env bash",
        f"# {case.id}",
        f"# ran here: {ran}",
        f"# expected: {case.expect.outcome}"
        + (f", {case.expect.signature}" if case.expect.signature else ""),
    ]
    if plan.latency_ms:
        lines.append(f"# here each link also had {plan.latency_ms} ms of latency each way")
    lines += [
        "#",
        "# usage: LLAMA_BIN=build/bin reproduce.sh [MODEL]",
        "set -u",
        "bin=${LLAMA_BIN:?directory of llama-server and ggml-rpc-server}",
        f'model=${{1:-$(dirname "$0")/../models/{plan.model.name}}}',
        "out=$(mktemp -d)",
        "trap 'kill $(jobs -p) 2>/dev/null; wait 2>/dev/null' EXIT",
        "",
    ]
    lines += [
        f'"$bin/ggml-rpc-server" -H 127.0.0.1 -p {port} {worker_args} >"$out/worker{i}.log" 2>&1 &'
        for i, port in enumerate(ports, 1)
    ]
    lines += [
        "sleep 1",
        f'"$bin/llama-server" {rpc}-m "$model" --host 127.0.0.1 --port {HTTP_PORT} -lv 4 \\',
        f'    {args} >"$out/head.log" 2>&1 &',
        "head=$!",
        "",
        "send() {",
        f"    curl -s http://127.0.0.1:{HTTP_PORT}/completion -H 'Content-Type: application/json'"
        ' -d "$1"',
        "    echo",
        "}",
        "",
        "for _ in $(seq 600); do",
        '    kill -0 "$head" 2>/dev/null || break',
        f"    curl -sf http://127.0.0.1:{HTTP_PORT}/health >/dev/null && break",
        "    sleep 0.1",
        "done",
        'if kill -0 "$head" 2>/dev/null; then',
        *[f"    {send}" for send in sends],
        "    sleep 1",
        "fi",
        "",
        'if kill -0 "$head" 2>/dev/null; then',
        '    echo "the head lives"',
        "else",
        '    wait "$head"; echo "the head ended: exit $?"',
        "fi",
        'echo "last lines of each node:"',
        'tail -n 4 "$out"/*.log',
        "",
    ]
    return "\n".join(lines)


def _on_loopback(arg: str, plan: Plan) -> str:
    for index, endpoint in enumerate(plan.rpc_endpoints(), 1):
        arg = arg.replace(endpoint, f"127.0.0.1:{LINK_PORT + index}")
    return shlex.quote(arg)
