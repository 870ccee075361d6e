"""The right answers: the same image, model and workload with no RPC at all, computed once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from lab import paths
from lab.args import without
from lab.case import Case
from lab.errors import LabError
from lab.evidence import Evidence
from lab.outcome import classify
from lab.scenario import RPC, Link, Workload
from lab.workload import payload

PLACEMENT = {
    "-ts": 1,
    "--tensor-split": 1,
    "-ot": 1,
    "--override-tensor": 1,
    "-sm": 1,
    "--split-mode": 1,
    "-mg": 1,
    "--main-gpu": 1,
    "-dev": 1,
    "--device": 1,
    "-nkvo": 0,
    "--no-kv-offload": 0,
    "-np": 1,
    "--parallel": 1,
    "--n-cpu-moe": 1,
    "-ncmoe": 1,
    RPC: 0,
}
"""Flags that say where or how many at once, not what to compute, and how many values each takes.
They mean nothing without workers, and the reference answers one request after another."""

Observe = Callable[[Evidence], None]

PLAIN = "cpu"
"""The flavour that references are computed with."""


def compared(case: Case) -> bool:
    """Whether the answers of a case are held against a reference: all but a reference itself."""
    return bool(case.workers) or case.head.flavour != PLAIN


def reference_case(case: Case) -> Case:
    """The case on one machine's processor: no RPC, no other device, no faults, no company."""
    return dataclasses.replace(
        case,
        id=f"{case.id} reference",
        head=dataclasses.replace(case.head, flavour=PLAIN),
        workers=(),
        draft=None,
        env={},
        args=(*without(case.args if case.right is None else case.right, PLACEMENT), "-np", "1"),
        right=None,
        link=Link(),
        faults=(),
        under=(),
        again=False,
        workload=Workload(**{**case.workload.model_dump(), "together": False}),
    )


def reference(
    alone: Case, image_id: str, model_sha: str, run: Path, observe: Observe
) -> list[dict[str, Any]]:
    """The answers of a reference case, from the cache or from one run.

    Raises:
        LabError: the run did not answer, so nothing can be said about RPC.
    """
    what = [image_id, model_sha, _asked(alone.workload), alone.args]
    key = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]
    file = paths.cache() / "references" / f"{key}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_suffix(".lock")):
        if file.is_file():
            answers: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
            return answers
        evidence = Evidence.create(run / "references", key)
        observe(evidence)
        outcome = classify(evidence)
        if outcome.outcome != "ok":
            raise LabError(
                f"there is no reference: without RPC the outcome is {outcome.words()}"
                + (f": {outcome.line}" if outcome.line else ""),
                where=str(evidence.path),
            )
        answers = evidence.read("answers.json")
        partial = file.with_suffix(".tmp")
        partial.write_text(json.dumps(answers), encoding="utf-8")
        partial.replace(file)
        return answers


def _asked(workload: Workload) -> list[dict[str, Any]]:
    return [payload(workload, index) for index in range(workload.requests)]
