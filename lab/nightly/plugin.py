"""The night's side of pytest, in every process: which cases, in which order, within the budgets.

Loaded by `lab/nightly/run.py` with `-p`, which pytest-xdist passes on to its workers.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from lab.nightly.budget import Ledger
from lab.nightly.plan import Need
from lab.plugin import CaseItem

OPTION = "--rpclab-night"
NOT_RUN = "not run: the time budget is used up"


@dataclass(frozen=True)
class Turn:
    """One run of one case, in the night's order."""

    case: str
    number: int
    """From 1."""
    need: Need
    seconds: float
    """How long it is expected to take."""


@dataclass(frozen=True)
class Order:
    """What the processes of a night must know: a JSON file."""

    turns: list[Turn]
    total: Need
    """The machine's."""
    deadline: float | None
    """Unix seconds."""

    def write(self, file: Path) -> None:
        """For `read`."""
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> Order:
        """Of `write`."""
        data = json.loads(file.read_text(encoding="utf-8"))
        turns = [Turn(**turn | {"need": Need(**turn["need"])}) for turn in data["turns"]]
        return cls(turns, Need(**data["total"]), data["deadline"])


class OutOfTime(KeyboardInterrupt):
    """The deadline came while a case ran: it ends as if interrupted, with no verdict."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The night's order."""
    parser.addoption(OPTION, type=Path, help="what to run tonight: a file of rpclab nightly")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The night's turns in place of what was collected."""
    cases = {item.case.id: item for item in items if isinstance(item, CaseItem)}
    items[:] = [_item(cases[turn.case], turn) for turn in _order(config).turns]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Wait for cores and memory; do not begin what would not end in time."""
    order = _order(item.config)
    turn: Turn = item.turn  # type: ignore[attr-defined]
    ledger = Ledger(item.config.getoption(OPTION).with_name("ledger.json"), order.total)
    try:
        with _alarm(order.deadline), ledger.claim(turn.need):
            if order.deadline and time.time() + turn.seconds > order.deadline:
                raise OutOfTime
            return (yield)
    except OutOfTime:
        pytest.skip(NOT_RUN)


def _order(config: pytest.Config) -> Order:
    return Order.read(config.getoption(OPTION))


def _item(item: CaseItem, turn: Turn) -> pytest.Item:
    name = item.name if turn.number == 1 else f"{item.name}#{turn.number}"
    assert item.parent is not None  # noqa: S101  (its file)
    made: CaseItem = CaseItem.from_parent(item.parent, name=name, case=item.case)
    made.turn = turn  # type: ignore[attr-defined]
    return made


@contextlib.contextmanager
def _alarm(deadline: float | None) -> Iterator[None]:
    """Raise `OutOfTime` in the main thread, which runs the cases, at the deadline."""
    if deadline is None:
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, deadline - time.time()))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
