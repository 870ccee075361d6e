"""The reference: what is left of a case without RPC, and when it is computed again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_evidence import ANSWERS, END, LOAD, made
from made_case import case, workers

from lab.case import Case
from lab.errors import LabError
from lab.evidence import Evidence
from lab.oracle import reference, reference_case
from lab.scenario import Link, Workload


@pytest.mark.parametrize(
    ("args", "left"),
    [
        ("-ngl 99 -c 2048", "-ngl 99 -c 2048"),
        ("-ts 2,5 -c 2048", "-c 2048"),
        ("--tensor-split 2,5 -sm layer -mg 0", ""),
        ("-ot blk.1.*=RPC0[worker1:50051] --override-tensor x=CPU", ""),
        ("-dev RPC0 --device RPC1 --split-mode row --main-gpu 1", ""),
        ("-nkvo -c 2048 --no-kv-offload", "-c 2048"),
        ("-np 4 -t 1 --parallel 2", "-t 1"),
        ("-fa off --no-warmup", "-fa off --no-warmup"),
    ],
)
def test_the_reference_keeps_what_is_computed_and_drops_where(args: str, left: str) -> None:
    alone = reference_case(case(args=tuple(args.split())))
    assert " ".join(alone.args) == f"{left} -np 1".strip()


def test_the_reference_has_no_workers_no_latency_and_no_company() -> None:
    workload = Workload(prompt=48, predict=16, requests=4, together=True)
    alone = reference_case(case(workers=workers(5), link=Link(latency_ms=20), workload=workload))
    assert (alone.workers, alone.link.latency_ms) == ((), 0)
    assert (alone.workload.requests, alone.workload.together) == (4, False)
    assert alone.model == case().model
    assert alone.head == case().head


class Computed:
    """Counts how often a reference had to be computed; each time it goes well."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RPCLAB_CACHE", str(folder / "cache"))
        self._run, self.cases = folder / "run", list[Case]()

    def __call__(self, wanted: Case, image: str = "sha256:1", model: str = "aa") -> Any:
        alone = reference_case(wanted)
        return reference(alone, image, model, self._run, lambda its: self._observe(alone, its))

    def _observe(self, alone: Case, evidence: Evidence) -> None:
        self.cases.append(alone)
        fill(evidence, case={"workers": 0}, reference=None)


def fill(evidence: Evidence, **what: Any) -> None:
    """Made-up observations in an evidence directory that is there already."""
    there = made(evidence.path / "made", **what)
    for path in sorted(there.path.rglob("*")):
        if path.is_file():
            evidence.write_text(str(path.relative_to(there.path)), path.read_text(encoding="utf-8"))


@pytest.fixture
def computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Computed:
    return Computed(tmp_path, monkeypatch)


def test_a_reference_is_computed_once(computed: Computed) -> None:
    assert computed(case()) == ANSWERS
    assert computed(case()) == ANSWERS
    assert len(computed.cases) == 1
    assert computed.cases[0].workers == ()


@pytest.mark.parametrize(
    "other",
    [
        case(workers=workers(5)),
        case(args=("-ngl", "99", "-t", "1", "-ts", "2,5")),
        case(args=("-ngl", "99", "-nkvo", "-t", "1")),
        case(link=Link(latency_ms=20)),
        case(workload=Workload(prompt=48, predict=16, tolerance=0.01)),
        case(workload=Workload(prompt=48, predict=16, together=True)),
    ],
)
def test_placement_company_and_tolerance_share_a_reference(computed: Computed, other: Case) -> None:
    computed(case())
    computed(other)
    assert len(computed.cases) == 1


@pytest.mark.parametrize(
    "again",
    [
        lambda of: of(case(), image="sha256:2"),
        lambda of: of(case(), model="bb"),
        lambda of: of(case(workload=Workload(prompt=49, predict=16))),
        lambda of: of(case(workload=Workload(prompt=48, predict=17))),
        lambda of: of(case(workload=Workload(prompt=48, predict=16, requests=2))),
        lambda of: of(case(args=("-ngl", "99", "-t", "1", "-fa", "off"))),
    ],
)
def test_another_image_model_workload_or_flag_has_another_reference(
    computed: Computed, again: Callable[[Computed], Any]
) -> None:
    computed(case())
    again(computed)
    assert len(computed.cases) == 2


@pytest.mark.parametrize(
    ("what", "word"),
    [
        ({"until": LOAD, "exits": {"head": (134, LOAD + 1)}}, "crash of head in load"),
        ({"until": END, "answers": None}, "error - no answer was recorded"),
    ],
)
def test_without_an_answer_there_is_no_reference_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: dict[str, Any], word: str
) -> None:
    monkeypatch.setenv("RPCLAB_CACHE", str(tmp_path / "cache"))

    def fails(evidence: Evidence) -> None:
        fill(evidence, case={"workers": 0}, reference=None, **what)

    for _ in range(2):
        with pytest.raises(LabError, match=f"without RPC the outcome is {word}"):
            reference(reference_case(case()), "sha256:1", "aa", tmp_path / "run", fails)
    assert not list((tmp_path / "cache").rglob("*.json"))
