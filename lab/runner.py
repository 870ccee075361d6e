"""Run cases of one run: image, model, reference, observations, outcome, verdict."""

from __future__ import annotations

import json
import os
import shutil
import traceback
from pathlib import Path
from typing import Any

from filelock import FileLock

from lab import __version__, engine, hosts, images, models, owner, reproduce, sweep
from lab.evidence import Evidence
from lab.guard import Guard
from lab.observe import Ready, observe
from lab.oracle import reference
from lab.scenario import Case
from lab.topology import Plan
from lab.verdict import Verdict, judge_evidence, record


class Runner:
    """Runs the cases of one run in this process, one at a time.

    Args:
        run: the run's evidence directory.
        keep: leave each case's topology up.
        source: where llama.cpp comes from, `git` or `sdist`; default: what can be reached.
    """

    def __init__(self, run: Path, *, keep: bool = False, source: str | None = None) -> None:
        self.run, self._keep, self._source = run, keep, source
        # The guard is there before anything that it guards.
        self._guard = Guard(str(owner.Owner.of(os.getpid())))
        self._client = engine.client()
        sweep.sweep_stale(self._client)

    def close(self) -> None:
        """Nothing of this process is left on the engine."""
        sweep.sweep_owner(self._client, str(owner.Owner.of(os.getpid())))
        self._guard.dismiss()

    def run_case(self, case: Case) -> tuple[Verdict, Path]:
        """The verdict of one case and its evidence directory. A failure of the lab is `error`."""
        evidence = Evidence.create(self.run, case.slug)
        facts = _facts(case)
        evidence.write("case.json", facts)
        if reason := hosts.missing(case.needs):
            evidence.write("case.json", facts | {"skip": reason})
        else:
            try:
                self._observe(case, evidence, facts)
            except KeyboardInterrupt:
                evidence.event("lab-error", what="interrupted")
                raise
            except Exception as error:  # whatever it is, it is the lab's failure, not llama.cpp's
                evidence.event("lab-error", what=str(error) or type(error).__name__)
                evidence.write_text("lab-error.txt", traceback.format_exc())
        outcome, verdict = judge_evidence(evidence)
        record(evidence, outcome, verdict)
        return verdict, evidence.path

    def _observe(self, case: Case, evidence: Evidence, facts: dict[str, Any]) -> None:
        image = self._image(case.image)
        model = models.build(case.model)
        path = _copy_model(model.path, self.run / "models")
        ran = image["labels"]["rpclab.description"]
        toxiproxy = images.ensure_toxiproxy().id
        evidence.write(
            "case.json",
            facts
            | {"ran": ran, "image": image, "toxiproxy": toxiproxy}
            | {"model": {"name": case.model_name, "file": path.name, "sha256": model.sha256}},
        )
        ready = Ready(self._client, image["id"], toxiproxy)
        plan = self._plan(case, ready, path, evidence)
        evidence.write_text("reproduce.sh", reproduce.script(case, plan, ran))
        (evidence.path / "reproduce.sh").chmod(0o755)
        observe(case, plan, ready, evidence, keep=self._keep)
        answers = evidence.read("answers.json", [])
        if case.workers and answers and not any(answer["error"] for answer in answers):
            right = reference(
                case,
                image["id"],
                model.sha256,
                self.run,
                lambda alone, its: self._observe_reference(alone, its, ready, path),
            )
            evidence.write("reference.json", right)

    def _observe_reference(self, case: Case, its: Evidence, ready: Ready, model: Path) -> None:
        its.write("case.json", _facts(case))
        observe(case, self._plan(case, ready, model, its), ready, its, keep=False)

    def _plan(self, case: Case, ready: Ready, model: Path, evidence: Evidence) -> Plan:
        label = str(evidence.path.relative_to(self.run))
        return Plan(
            image=ready.image,
            toxiproxy=ready.toxiproxy,
            model=model,
            workers=case.workers,
            head_args=case.args,
            worker_args=case.worker_args,
            latency_ms=case.link.latency_ms,
            labels=owner.labels(self.run.name, label, keep=self._keep),
        )

    def _image(self, spec: images.ImageSpec) -> dict[str, Any]:
        """The image of this run, looked up once for all its processes."""
        file = self.run / "images" / f"{spec.name}.json"
        file.parent.mkdir(exist_ok=True)
        with FileLock(file.with_suffix(".lock")):
            if not file.is_file():
                image = images.ensure(spec, source=self._source)
                found = {"tag": image.tag, "id": image.id, "labels": dict(image.labels)}
                file.write_text(json.dumps(found, indent=2), encoding="utf-8")
            data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return data


def _facts(case: Case) -> dict[str, Any]:
    """The content of `case.json`, as far as the scenario file tells it."""
    return {
        "id": case.id,
        "scenario": case.scenario,
        "image": {"name": case.image.name},
        "model": {"name": case.model_name},
        "workers": case.workers,
        "args": list(case.args),
        "worker_args": list(case.worker_args),
        "workload": case.workload.model_dump(),
        "link": case.link.model_dump(),
        "budget": case.budget.model_dump(),
        "needs": list(case.needs),
        "expect": case.expect.model_dump(),
        "why": case.why,
        "lab": __version__,
    }


def _copy_model(path: Path, folder: Path) -> Path:
    """The run keeps its models: the evidence is whole even when the cache is deleted."""
    folder.mkdir(exist_ok=True)
    copy = folder / path.name
    with FileLock(folder / f".{path.name}.lock"):
        if not copy.is_file():
            partial = copy.with_suffix(".tmp")
            shutil.copyfile(path, partial)
            partial.replace(copy)
    return copy
