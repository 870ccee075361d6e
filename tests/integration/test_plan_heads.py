"""`rpclab plan` against real heads: what they log, and what becomes of the borders it judges.

Here a sample; `make plan-grid` and `make plan-borders` run all there is.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.plan import borders, grid, heads
from lab.plan.compare import Logged, differences
from lab.plan.grid import Combination
from lab.plan.warnings import warnings
from tests.integration.conftest import RunLab

SAMPLE = grid.ALL[:: len(grid.ALL) // 20][:20]
"""Every model is in it, and twenty lines: 53 is prime to the step."""


@pytest.fixture(scope="module")
def logged() -> dict[Combination, Logged]:
    seen = heads.run([one.head() for one in SAMPLE])
    return {one: Logged.read(head.lines) for one, head in zip(SAMPLE, seen, strict=True)}


def test_the_sample_is_wide() -> None:
    assert {one.model for one in SAMPLE} == {one.model for one in grid.ALL}
    assert len({one.line for one in SAMPLE}) >= 15
    assert len(grid.ALL) >= 200


@pytest.mark.parametrize("one", SAMPLE, ids=str)
def test_a_head_logs_what_the_plan_says(
    one: Combination, logged: dict[Combination, Logged]
) -> None:
    assert differences(one.scene(), logged[one]) == []


@pytest.mark.parametrize("one", SAMPLE, ids=str)
def test_another_plan_is_seen(one: Combination, logged: dict[Combination, Logged]) -> None:
    """The flip: the same head's log, held against the plan of half again as many slots."""
    other = replace(one, line=f"{one.line} -np 6 -no-kvu -ctk f32 -ctv f32 -fa off -c 9000")
    assert differences(other.scene(), logged[one])


CASES = [
    *(("glm-dsa", 2, ts) for ts in borders.suggested("glm-dsa", 2)),
    *(("glm-dsa", 3, ts) for ts in borders.suggested("glm-dsa", 3)[:1]),
    *(("deepseek4", 2, ts) for ts in borders.suggested("deepseek4", 2)),
    *(("deepseek4-front", 3, ts) for ts in borders.suggested("deepseek4-front", 3)[:1]),
    ("glm-dsa", 2, "3,4"),
    ("deepseek4", 2, "6,1"),
    ("deepseek4", 2, "2,5"),
]
"""Suggestions, which answer; and warned borders, which crash."""


def test_suggestions_answer_and_warned_borders_crash(run_lab: RunLab) -> None:
    ran = run_lab(borders.TOP + "".join(borders.case(*case) for case in CASES), "-n", "2")
    verdicts = ran.verdicts()
    assert len(verdicts) == len(CASES)
    for name, (verdict, reason) in verdicts.items():
        assert verdict == "pass", f"{name}: {reason}"
    warned = [warnings(borders.scene(m, n, f"{borders.LINE} -ts {ts}")) for m, n, ts in CASES]
    assert sum(bool(rules) for rules in warned) == 3
