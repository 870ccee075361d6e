"""Evidence directories to judge, made up second by second; the log lines are real ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.evidence import Evidence

RECORDED = Path(__file__).parent / "recorded" / "mini"
"""Trimmed evidence of a real run at b10705: a crash of glm-dsa, and llama that answers."""

T0 = 1796100872
"""Unix seconds at which every made-up case begins."""

LOADS = "0.00.025.823 I llama_model_loader: loaded meta data with 45 key-value pairs"
WARMS_UP = (
    "0.00.249.570 I cmn  common_init_: warming up the model with an empty run - please wait ..."
    " (--no-warmup to disable)"
)
GLUED = (
    "[create_node] invalid data ptr[graph_compute] failed to create graph node 30"
    " (id=140287327615168)"
)
LOST = (
    "/src/ggml/src/ggml-rpc/ggml-rpc.cpp:566: "
    "Remote RPC server crashed or returned malformed response"
)

START, LOAD, WARMUP, HEALTHY, PREFILL, DECODE, ANSWER, SHUTDOWN, END = range(1, 10)
"""Seconds after T0 at which a case that goes well gets there."""

Log = Iterable[tuple[float, str]]

ANSWERS: list[dict[str, Any]] = [
    {
        "prompt_tokens": 48,
        "tokens": [351, 316, 344],
        "logprobs": [-0.4032548666000366, -1.049307942390442, -0.7269562482833862],
        "text": "|Yu",
        "error": None,
    }
]

CASE: dict[str, Any] = {
    "id": "mini[llama-2w-f1793c1c4]",
    "scenario": "mini",
    "workers": 2,
    "workload": {
        "prompt": 48,
        "predict": 3,
        "requests": 1,
        "together": False,
        "tolerance": 0.001,
    },
    "expect": {"outcome": "ok"},
    "ran": "b10705 (sdist), for pin f1793c1c4",
}

RUNS: dict[str, Any] = {"running": True, "exit": None, "oom_killed": False, "finished": None}


def made(
    path: Path,
    *,
    until: int = END,
    exits: Mapping[str, tuple[int, float]] | None = None,
    logs: Mapping[str, Log] | None = None,
    events: Iterable[tuple[float, str, dict[str, Any]]] = (),
    nodes: Mapping[str, dict[str, Any] | None] | None = None,
    answers: Any = ANSWERS,
    reference: Any = ANSWERS,
    case: Mapping[str, Any] | None = None,
) -> Evidence:
    """The evidence of a case that went well until second `until`.

    Args:
        path: the new directory.
        until: the timeline and the head's log stop here; answers are there from `ANSWER` on.
        exits: node -> (exit code, second), where it ended by itself.
        logs: node -> more lines, (second, line).
        events: more of the timeline: (second, name, facts).
        nodes: node -> changed facts of `nodes.json`; None: the node is not in it.
        answers: `answers.json`; None: there is none.
        reference: `reference.json`; None: there is none.
        case: changed facts of `case.json`.
    """
    facts = CASE | dict(case or {})
    names = ["head", *(f"worker{i}" for i in range(1, facts["workers"] + 1)), "toxiproxy"]
    states = {name: dict(RUNS) for name in names}
    if until >= END:
        states["head"] |= {"running": False, "exit": 0, "finished": T0 + END}
    for name, (code, second) in (exits or {}).items():
        states[name] |= {"running": False, "exit": code, "finished": T0 + second}
    for name, change in (nodes or {}).items():
        states[name] |= change or {}
        if change is None:
            del states[name]

    timeline: list[tuple[float, str, dict[str, Any]]] = [
        (0, "begin", {}),
        (START, "head-started", {}),
        (HEALTHY, "healthy", {}),
        (PREFILL, "request", {"index": 0}),
        (DECODE, "first-token", {}),
        (ANSWER, "answer", {"index": 0}),
        (SHUTDOWN, "shutdown", {}),
    ]
    timeline = [*(event for event in timeline if event[0] <= until), *events]
    lines: dict[str, list[tuple[float, str]]] = {name: [] for name in names}
    lines["head"] = [(s, text) for s, text in ((LOAD, LOADS), (WARMUP, WARMS_UP)) if s <= until]
    for name, more in (logs or {}).items():
        lines[name] += more

    evidence = Evidence.create(path.parent, path.name)
    evidence.write("case.json", facts)
    evidence.write("nodes.json", states)
    evidence.write_text(
        "events.jsonl",
        "".join(
            json.dumps({"t": T0 + second, "event": name, **more}) + "\n"
            for second, name, more in sorted(timeline, key=lambda event: event[0])
        ),
    )
    for name, texts in lines.items():
        evidence.write_text(
            f"logs/{name}.log", "".join(f"{stamp(second)} {text}\n" for second, text in texts)
        )
    if answers is not None and until >= ANSWER:
        evidence.write("answers.json", answers)
    if reference is not None:
        evidence.write("reference.json", reference)
    return evidence


def crashed(path: Path, *, during: int = WARMUP, **more: Any) -> Evidence:
    """The crash of #28047 half a second into a phase: a worker logs, the head aborts."""
    at = during + 0.5
    logs = {"worker2": [(at - 0.1, GLUED)], "head": [(at, LOST)]}
    return made(path, until=during, exits={"head": (134, at)}, logs=logs, answers=None, **more)


def answer(**changes: Any) -> list[dict[str, Any]]:
    """`ANSWERS` with some keys of the one answer changed."""
    return [ANSWERS[0] | changes]


def stamp(second: float) -> str:
    """The engine's timestamp of a second of a made-up case."""
    whole = datetime.fromtimestamp(T0 + int(second), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{round(second % 1 * 1e9):09d}Z"
