"""What a pull request runs."""

import pytest

from lab import paths
from lab.case import load_cases
from lab.nightly.touched import touched

SCENARIOS = {file.stem: load_cases(file) for file in paths.SCENARIOS.glob("*.toml")}


@pytest.mark.parametrize(
    ("changed", "runs"),
    [
        (["scenarios/26746.toml"], {"26746"}),
        (["scenarios/26746.toml", "scenarios/placement.toml"], {"26746", "placement"}),
        (["scenarios/gone.toml"], set()),
        (["images/simdev/rules/hip.rules"], {"26746"}),
        (["images/variants/offload-false.toml"], {"28047"}),
        (["lab/models/qwen35moe.py"], {"25644", "placement"}),
        (["lab/models/glm_dsa.py"], {"26746", "28047"}),
        (["images/pins.toml"], {"28047"}),
        (["lab/topology.py"], {"28047"}),
        (["lab/models/base.py"], {"28047"}),
        (["pyproject.toml"], {"28047"}),
        (["README.md", "docs/28047.svg", "tests/unit/test_cli.py"], set()),
        (["lab/nightly/plan.py", "lab/cli/run.py", ".github/workflows/nightly.yml"], set()),
        ([], set()),
    ],
)
def test_a_change_runs_what_it_touches(changed: list[str], runs: set[str]) -> None:
    of_today = {"25644", "26746", "28047", "placement"}
    assert set(touched(changed, SCENARIOS)) & of_today == runs


def test_a_backend_that_every_case_uses_runs_all() -> None:
    assert touched(["images/cpu/Dockerfile"], SCENARIOS) == sorted(SCENARIOS)
