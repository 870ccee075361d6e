"""A search for workarounds on the engine: a real cure, and one that answers with other tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import models, paths
from lab.case import load_cases
from lab.plan import header
from lab.pool import Pool
from lab.workarounds import advice
from lab.workarounds.hunt import Hunt, Quest
from lab.workarounds.knobs import Cost, Ground, Knob, flag
from lab.workarounds.trial import Trials

OTHER_TOKENS = ("--override-kv", "glm-dsa.attention.layer_norm_rms_epsilon=float:10")
"""Does not fail, and changes every layer's output."""

TABLE = (
    Knob("cure", Cost.FLAG, "an own indexer behind the border", flag("-ts", "2,5"), places=True),
    Knob("false", Cost.FLAG, "answers with other tokens", flag("-ts", "2,5", *OTHER_TOKENS)),
    Knob("none", Cost.FLAG, "changes nothing", flag("--no-warmup")),
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> advice.Facts:
    path = tmp_path_factory.mktemp("workarounds")
    file = paths.SCENARIOS / "28047.toml"
    slug = "glm-dsa-2w-f1793c1c4"
    case = next(case for case in load_cases(file) if case.slug == slug)
    ground = Ground(case, header.read(models.build(case.model).path))
    quest = Quest(str(file), slug, [knob.name for knob in TABLE])
    hunt = Hunt(path, quest, ground, lambda case: None, TABLE)
    with Pool(path, 2, None) as pool:
        hunt.go(Trials(pool), print)
    return advice.facts(hunt)


@pytest.mark.parametrize(
    ("knob", "result", "words"),
    [
        ("cure", advice.CURE, "ok"),
        ("false", advice.WRONG, "wrong-output at head in decode"),
        ("none", advice.SAME, "crash of head in warmup (create-node-invalid-data-ptr, exit 134)"),
    ],
)
def test_only_the_right_output_is_a_cure(
    found: advice.Facts, knob: str, result: str, words: str
) -> None:
    row = next(row for row in found["changes"] if row["knob"] == knob)
    assert row["result"] == result
    assert row["outcome"].startswith(words)


def test_a_cure_was_repeated_and_measured(found: advice.Facts) -> None:
    cure = next(row for row in found["changes"] if row["knob"] == "cure")
    assert cure["runs"] == 5
    assert cure["tokens_per_second"] > 0
    assert cure["of_one_worker"] > 0
    for path in cure["evidence"]:
        assert (Path(path) / "verdict.json").is_file()
