"""Devices that refuse operations: the simulated one, with its rule and without."""

from __future__ import annotations

import pytest

from tests.integration.conftest import AFFECTED, Ran, RunLab, scenario_text

CRASH = """
[case.expect]
outcome = "crash"
node = "worker1"
phase = "prefill"
exit = 134
signature = "op-limit"
logged_by = "worker1"
dead = ["head", "worker"]
"""


def case(tokens: int, tag: str, expect: str, *keys: str) -> str:
    """A prompt of so many tokens on one simulated worker."""
    return "\n".join(
        [
            "[[case]]",
            f'pin = "{AFFECTED}"',
            'model = "deepseek4"',
            "workers = 1",
            'flavour = "simdev"',
            f'tag = "{tag}"',
            'args = ["-c", "8192"]',
            f"workload = {{ prompt = {tokens}, predict = 1 }}",
            *keys,
            expect,
        ]
    )


OK = 'expect = { outcome = "ok" }'
NO_RULE = 'env = { SIMDEV_RULES = "none" }'


@pytest.fixture(scope="module")
def ran(run_lab: RunLab) -> Ran:
    cases = [
        case(4099, "last", OK),
        case(4100, "first", CRASH),
        case(4100, "no-rule", OK, NO_RULE),
        case(4100, "wrong", OK),
        case(4100, "flip", CRASH, NO_RULE),
    ]
    return run_lab(scenario_text("\n".join(cases)))


@pytest.mark.parametrize(
    ("tag", "verdict", "words"),
    [
        ("last", "pass", "ok, output right"),
        ("first", "pass", "crash of worker1 in prefill (op-limit, exit 134)"),
        ("no-rule", "pass", "ok, output right"),
        ("wrong", "fail", "expected ok, got crash of worker1"),
        ("flip", "fail", "expected crash"),
    ],
)
def test_the_rule_decides(ran: Ran, tag: str, verdict: str, words: str) -> None:
    found, reason = ran.verdicts()[f"test[deepseek4-1w-{AFFECTED}-simdev-{tag}]"]
    assert found == verdict
    assert reason.startswith(words)


def test_a_simulated_device_is_called_simulated(ran: Ran) -> None:
    assert ran.output.count("simulated device") >= 5
