"""`reproduce.sh`: the case with plain llama.cpp binaries and its model; no container, no Python."""

from __future__ import annotations

import json
import shlex

from lab.case import Case
from lab.images import ImageSpec
from lab.oracle import PLAIN
from lab.signatures import load_signatures
from lab.topology import LINK_PORT, Plan, head_args
from lab.workload import payload

HTTP_PORT = 18080

HEAD = """\
#!/usr/bin/env bash
# {id}
# ran here: {ran}
# expected: {expected}{note}
#
# usage: LLAMA_BIN=build/bin reproduce.sh [MODEL]
# Exits 0 where this comes out as expected, 1 where it does not, 2 where it cannot run.
set -u
bin=${{LLAMA_BIN:?directory of llama-server and ggml-rpc-server}}
worker_bin=${{LLAMA_WORKER_BIN:-$bin}}
model=${{1:-$(dirname "$0")/../models/{model}}}
for file in "$bin/llama-server" "$worker_bin/ggml-rpc-server" "$model"; do
    [ -r "$file" ] || {{ echo "no such file: $file" >&2; exit 2; }}
done
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait 2>/dev/null' EXIT

http() {{ # METHOD PATH [BODY]: bash itself speaks to the head
    exec 3<>/dev/tcp/127.0.0.1/{port} || return 1
    printf '%s %s HTTP/1.0\\r\\n' "$1" "$2" >&3
    printf 'Content-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n%s' "${{#3}}" "$3" >&3
    cat <&3
}}
"""

TAIL = """\

if kill -0 "$head" 2>/dev/null; then
    ended=0; echo "the head lives"
else
    wait "$head"; ended=$?; echo "the head ended: exit $ended"
fi
echo "last lines of each node:"
tail -n 4 "$out"/*.log
{check}
"""


def script(case: Case, plan: Plan, ran: str) -> str:
    """The text of the script. `ran` says which source and build the case really ran."""
    expect = case.expect
    ports = [LINK_PORT + i for i in range(1, len(plan.workers) + 1)]
    notes = [
        f"{name} ran the flavour {spec.flavour} (images/{spec.flavour}/Dockerfile)"
        for name, spec in [("head", case.head), *_named(case)]
        if spec.flavour != PLAIN
    ]
    notes += [
        f"{name} was of another build ({spec.pin}): give its directory as LLAMA_WORKER_BIN"
        for name, spec in _named(case)
        if spec.pin != case.head.pin
    ]
    if plan.link.latency_ms:
        which = f"the link of {plan.link.only}" if plan.link.only else "each link"
        notes.append(f"{which} also had {plan.link.latency_ms} ms of latency each way")
    notes += [
        f"there was a fault that this script does not make: {fault.words()}"
        for fault in (*case.faults, *case.under)
    ]
    text = HEAD.format(
        id=case.id,
        ran=ran,
        expected=", ".join(filter(None, (expect.outcome, expect.signature))),
        note="".join(f"\n# here {note}" for note in notes),
        model=plan.model.name,
        port=HTTP_PORT,
    )
    return "\n".join(
        [text, *_nodes(plan, ports), *_requests(case), TAIL.format(check=_check(case))]
    )


def _named(case: Case) -> list[tuple[str, ImageSpec]]:
    return [(f"worker{i}", spec) for i, spec in enumerate(case.workers, 1)]


def _nodes(plan: Plan, ports: list[int]) -> list[str]:
    rpc = ",".join(f"127.0.0.1:{port}" for port in ports)
    args = " ".join(_on_loopback(arg, plan) for arg in head_args(plan, rpc))
    draft = f'-md "$(dirname "$model")/{plan.draft.name}" ' if plan.draft else ""
    return [
        *(f"export {name}={shlex.quote(value)}" for name, value in plan.env.items()),
        *(
            f'"$worker_bin/ggml-rpc-server" -H 127.0.0.1 -p {port} {shlex.join(worker.args)} '
            f'>"$out/worker{i}.log" 2>&1 &'
            for i, (port, worker) in enumerate(zip(ports, plan.workers, strict=True), 1)
        ),
        "sleep 1",
        f'"$bin/llama-server" -m "$model" {draft}--host 127.0.0.1 --port {HTTP_PORT} -lv 4 \\',
        f'    {args} >"$out/head.log" 2>&1 &',
        "head=$!",
        "",
    ]


def _requests(case: Case) -> list[str]:
    bodies = [
        json.dumps(payload(case.workload, index) | {"stream": False})
        for index in range(case.workload.requests)
    ]
    sends = [f"    http POST /completion {shlex.quote(body)}" for body in bodies]
    if case.workload.together:
        sends = [f"{send} & clients+=($!)" for send in sends] + ['    wait "${clients[@]}"']
    return [
        "for _ in $(seq 600); do",
        '    kill -0 "$head" 2>/dev/null || break',
        '    (http GET /health "") 2>/dev/null | grep -q "200 OK" && break',
        "    sleep 0.1",
        "done",
        'if kill -0 "$head" 2>/dev/null; then',
        *sends,
        "    echo",
        "    sleep 1",
        "fi",
    ]


def _check(case: Case) -> str:
    """The exit code: whether the head ended as expected, with the expected line in some log."""
    expect = case.expect
    if expect.outcome == "ok":
        return '[ "$ended" = 0 ]'
    tests = [f'[ "$ended" = {expect.exit} ]' if expect.exit else '[ "$ended" != 0 ]']
    pattern = load_signatures()[expect.signature].pattern if expect.signature else None
    if pattern:
        pattern = shlex.quote(pattern)
        tests.append(f'grep -Eq {pattern} "$out"/*.log')
    return " && ".join(tests)


def _on_loopback(arg: str, plan: Plan) -> str:
    for index, endpoint in enumerate(plan.rpc_endpoints(), 1):
        arg = arg.replace(endpoint, f"127.0.0.1:{LINK_PORT + index}")
    return shlex.quote(arg)
