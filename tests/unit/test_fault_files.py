"""Faults in scenario files: what is wrong is told by its place, and with what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.case import Case, load_cases
from lab.errors import InputError
from lab.faults import KINDS, Ground

FILE = """
report = "faults"
title = "a test"
worker_args = ["-t", "1", "-c"]

[[case]]
pin = "f1793c1c4"
model = "llama"
workers = 2
env = {{ LLAMA_CACHE = "/tmp/c" }}
{row}
expect = {{ {expect} }}
"""
OK = 'outcome = "ok"'


def load(tmp_path: Path, row: str, expect: str = OK) -> Case:
    path = tmp_path / "faults.toml"
    path.write_text(FILE.format(row=row, expect=expect))
    (case,) = load_cases(path)
    return case


PARAMETERS = {
    "latency": "latency_ms = 5",
    "bandwidth": "kb_per_s = 5",
    "slow-close": "delay_ms = 5",
    "slicer": "size = 5",
    "limit": "max_bytes = 5",
    "memory": "limit_mib = 50",
    "cpu": "cpus = 0.5",
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_can_be_given_on_a_worker(tmp_path: Path, kind: str) -> None:
    more = f", {PARAMETERS[kind]}" if kind in PARAMETERS else ""
    case = load(tmp_path, f'faults = [{{ kind = "{kind}", on = "worker2"{more} }}]')
    assert [(fault.kind, fault.targets(2)) for fault in case.faults] == [(kind, ["worker2"])]
    assert KINDS[kind].__doc__


def test_workers_means_each_of_them(tmp_path: Path) -> None:
    case = load(tmp_path, 'under = [{ kind = "latency", on = "workers", latency_ms = 5 }]')
    assert case.under[0].targets(2) == ["worker1", "worker2"]


WRONG = [
    ('kind = "latancy", on = "worker1"', "case.0.faults.0.kind", "did you mean 'latency'?"),
    ('on = "worker1"', "case.0.faults.0.kind", "required, but missing"),
    ('kind = "down"', "case.0.faults.0.on", "required, but missing"),
    ('kind = "down", on = "worker3"', "case.0.faults.0", "no worker3 in a case with 2 worker(s)"),
    ('kind = "down", on = "head"', "case.0.faults.0.on", "should match pattern"),
    ('kind = "latency", on = "worker1"', "case.0.faults.0.latency_ms", "required, but missing"),
    (
        'kind = "latency", on = "worker1", latency_ms = -1',
        "case.0.faults.0.latency_ms",
        "greater than or equal to 1, not -1",
    ),
    (
        'kind = "latency", on = "worker1", latency = 5',
        "case.0.faults.0.latency",
        "did you mean 'latency_ms'?",
    ),
    (
        'kind = "reset", on = "worker1", direction = "up"',
        "case.0.faults.0.direction",
        "'upstream', 'downstream' or 'both'",
    ),
    ('kind = "kill", on = "worker1", signal = "KILL"', "case.0.faults.0.signal", "'SIGKILL'"),
    ('kind = "kill", on = "head"', "case.0.faults.0", "before its start there is no head"),
    (
        'kind = "kill", on = "worker1", until = { seconds = 1 }',
        "case.0.faults.0",
        "this fault does not end",
    ),
    ('kind = "down", on = "worker1", times = 3', "case.0.faults.0", "only a fault that ends"),
    (
        'kind = "down", on = "worker1", at = { tokens = 1, seconds = 1 }',
        "case.0.faults.0.at",
        "here: tokens, seconds",
    ),
    ('kind = "down", on = "worker1", at = {}', "case.0.faults.0.at", "here: none"),
    (
        'kind = "down", on = "worker1", at = { phase = "prefil" }',
        "case.0.faults.0.at.phase",
        "did you mean 'prefill'?",
    ),
    (
        'kind = "down", on = "worker1", at = { line = "[" }',
        "case.0.faults.0.at.line",
        "not a regular expression",
    ),
    (
        'kind = "down", on = "worker1", at = { line = "x", node = "worker3" }',
        "case.0.faults.0.at.node",
        "worker3 does not exist in a case with 2 worker(s)",
    ),
    (
        'kind = "down", on = "worker1", at = { between = [3, 1] }',
        "case.0.faults.0.at",
        "[earliest, latest]",
    ),
    (
        'kind = "down", on = "worker1", until = { before = "shutdown" }',
        "case.0.faults.0",
        "cannot end before",
    ),
]


@pytest.mark.parametrize(("fault", "where", "told"), WRONG)
def test_a_wrong_fault_is_told(tmp_path: Path, fault: str, where: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        load(tmp_path, f"faults = [{{ {fault} }}]")
    assert str(tmp_path / "faults.toml") in str(error.value)
    assert where in str(error.value)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("row", "expect", "told"),
    [
        ("", OK + ', after = { then = "answers" }', "expect.after needs `faults`"),
        ("", OK + ', after = { again = "answers" }', "needs `again = true`"),
        ("again = true", OK + ", after = { within = 1 }", "`within` belongs to `then`"),
        ("", OK + ', after = { than = "answers" }', "did you mean 'then'?"),
        ('under = [{ kind = "kill", on = "worker1" }]', OK, "kill matters to any case"),
    ],
)
def test_a_wrong_expectation_is_told(tmp_path: Path, row: str, expect: str, told: str) -> None:
    with pytest.raises(InputError, match=r"case\.0") as error:
        load(tmp_path, row, expect)
    assert told in str(error.value)


def test_a_cache_fault_needs_a_cache(tmp_path: Path) -> None:
    path = tmp_path / "faults.toml"
    text = FILE.format(row='faults = [{ kind = "cache-full", on = "worker1" }]', expect=OK)
    for part, told in ((', "-c"', "keep no cache"), ("/tmp/c", "can write below /tmp only")):  # noqa: S108
        path.write_text(text.replace(part, ""))
        with pytest.raises(InputError, match=r"case\.0\.faults\.0") as error:
            load_cases(path)
        assert told in str(error.value)


def test_an_engine_without_limits_cannot_starve(tmp_path: Path) -> None:
    case = load(tmp_path, 'faults = [{ kind = "memory", on = "worker1", limit_mib = 50 }]')
    (fault,) = case.faults
    able = {"MemoryLimit": True, "SwapLimit": False}
    assert fault.unavailable(Ground(2, engine=able)) == "the engine has no SwapLimit"
    assert fault.unavailable(Ground(2, engine=able | {"SwapLimit": True})) is None
