"""Run cases of one run: image, model, reference, observations, outcome, verdict."""

from __future__ import annotations

import json
import os
import shutil
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from lab import __version__, engine, faults, hosts, images, models, owner, paths, reproduce, sweep
from lab.case import Case
from lab.evidence import Evidence
from lab.flavours import load_flavour
from lab.guard import Guard
from lab.observe import observe
from lab.oracle import compared, reference, reference_case
from lab.topology import NodePlan, Plan
from lab.verdict import Verdict, judge_evidence, record

DEVICE = {"-d", "--device"}
"""What a worker offers."""


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
        if reason := hosts.missing(case.needs) or self._without_fault(case):
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

    def _without_fault(self, case: Case) -> str | None:
        """Why a fault of the case cannot be made on this engine, or None."""
        if not (given := (*case.faults, *case.under)):
            return None
        able = self._client.info()
        ground = faults.Ground(len(case.workers), case.worker_args, case.env, able)
        return faults.unavailable(given, ground)

    def _observe(self, case: Case, evidence: Evidence, facts: dict[str, Any]) -> None:
        found = {spec: self._image(spec) for spec in sorted(case.images)}
        model, path = self._model(case.model)
        draft = self._model(case.draft)[1] if case.draft else None
        toxiproxy = images.ensure_toxiproxy().id
        ran = _ran(case, found)
        evidence.write(
            "case.json",
            facts
            | {"ran": ran, "image": found[case.head], "toxiproxy": toxiproxy}
            | {"worker_images": [found[spec] for spec in case.workers]}
            | {"model": {"name": case.model_name, "file": path.name, "sha256": model.sha256}},
        )
        ready = _Ready({spec: data["id"] for spec, data in found.items()}, toxiproxy, path, draft)
        plan = self._plan(case, ready, evidence)
        evidence.write_text("reproduce.sh", reproduce.script(case, plan, ran))
        (evidence.path / "reproduce.sh").chmod(0o755)
        observe(case, plan, self._client, evidence, keep=self._keep)
        if compared(case) and _answered(evidence):
            alone = reference_case(case)
            image = self._image(alone.head)["id"]
            ready = _Ready({alone.head: image}, toxiproxy, path, None)
            right = reference(
                alone,
                image,
                model.sha256,
                self.run,
                lambda its: self._observe_reference(alone, its, ready),
            )
            evidence.write("reference.json", right)

    def _observe_reference(self, case: Case, its: Evidence, ready: _Ready) -> None:
        its.write("case.json", _facts(case))
        observe(case, self._plan(case, ready, its), self._client, its, keep=False)

    def _plan(self, case: Case, ready: _Ready, evidence: Evidence) -> Plan:
        label = str(evidence.path.relative_to(self.run))
        return Plan(
            head=_node(case.head, ready, case.args, on_worker=False),
            workers=tuple(
                _node(spec, ready, case.worker_args, on_worker=True) for spec in case.workers
            ),
            toxiproxy=ready.toxiproxy,
            model=ready.model,
            draft=ready.draft,
            env=case.env,
            link=case.link,
            labels=owner.labels(self.run.name, label, keep=self._keep),
            ready_seconds=case.budget.start,
        )

    def _model(self, spec: models.ModelSpec) -> tuple[models.Model, Path]:
        model = models.build(spec)
        return model, _copy_model(model.path, self.run / "models")

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


@dataclass(frozen=True)
class _Ready:
    """What a case needs before it can run."""

    images: Mapping[images.ImageSpec, str]
    toxiproxy: str
    model: Path
    draft: Path | None


def _node(
    spec: images.ImageSpec, ready: _Ready, args: tuple[str, ...], *, on_worker: bool
) -> NodePlan:
    flavour = load_flavour(spec.flavour)
    # A second -d adds a device.
    offers = on_worker and flavour.device and not DEVICE.intersection(args)
    device = ("-d", flavour.device) if offers and flavour.device else ()
    cache = None
    if flavour.cache:
        # Of one image: what another build compiled is of no use to it.
        home = paths.cache() / "nodes" / ready.images[spec].replace(":", "-")
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o777)  # The node's user is not ours.
        cache = (home, flavour.cache)
    return NodePlan(ready.images[spec], (*device, *args), cache)


def _ran(case: Case, found: Mapping[images.ImageSpec, dict[str, Any]]) -> str:
    """What really ran: the head's build and source, the workers' where it is another, and the
    simulated device by that name."""
    ran = str(found[case.head]["labels"]["rpclab.description"])
    own = found[case.head]["labels"]["rpclab.build"]
    others = {found[spec]["labels"]["rpclab.build"] for spec in case.workers} - {own}
    ran += "".join(f" + workers of b{build}" for build in sorted(others))
    simulated = any(load_flavour(spec.flavour).simulated for spec in case.images)
    return f"{ran} + simulated device" if simulated else ran


def _answered(evidence: Evidence) -> bool:
    """Whether there is anything to compare: all answers, or one after the fault."""
    answers = evidence.read("answers.json", [])
    later = [evidence.read(name, {}).get("answer") for name in ("probe.json", "again.json")]
    return bool(answers and not any(answer["error"] for answer in answers)) or any(
        answer and not answer["error"] for answer in later
    )


def _facts(case: Case) -> dict[str, Any]:
    """The content of `case.json`, as far as the scenario file tells it."""
    return {
        "id": case.id,
        "scenario": case.scenario,
        "image": {"name": case.head.name},
        "worker_images": [{"name": spec.name} for spec in case.workers],
        "model": {"name": case.model_name},
        "workers": len(case.workers),
        "compared": compared(case),
        "args": list(case.args),
        "worker_args": list(case.worker_args),
        "draft": case.draft_name,
        "env": dict(case.env),
        "workload": case.workload.model_dump(),
        "link": case.link.model_dump(),
        "faults": [fault.model_dump(exclude_none=True) for fault in case.faults],
        "under": [fault.model_dump(exclude_none=True) for fault in case.under],
        "again": case.again,
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
