"""The cost of links, from runs with a known one; and what a network allows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab import models
from lab.bill.measure import (
    CHECKED_MS,
    FAR_MS,
    PREDICT,
    PROMPT,
    REQUESTS,
    Amount,
    Bill,
    Cost,
    Seen,
    bill,
    cases,
)
from lab.bill.network import Network, at_best, networks, predicted, scaled
from lab.errors import InputError, LabError
from lab.plan import header

TRIPS = {1: 1.0, 2: 2.0}
"""Link -> round trips of a generated token in the planted runs."""
COMPUTE = 0.004


def planted(key: str) -> Seen:
    """A run of two workers: 100 bytes up, 40 down of a prompt token, 900 and 300 of another."""
    prompts = REQUESTS * PROMPT * (2 if key == "long-prompt" else 1)
    answers = REQUESTS * PREDICT * (2 if key == "long-answer" else 1)
    delays = {n: FAR_MS if key == f"far-{n}" else 0 for n in TRIPS}
    if key.startswith("check-"):
        delays = dict.fromkeys(TRIPS, int(key.removeprefix("check-")))
    waits = sum(TRIPS[n] * 2 * delay / 1000 for n, delay in delays.items())
    prompt_waits = sum(2 * delay / 1000 for delay in delays.values())
    link = {
        "up": 5000 + 100 * prompts + 900 * answers,
        "down": 700 + 40 * prompts + 300 * answers,
    }
    traffic = {"worker1": link, "worker2": link, "head": {"up": 1, "down": 1}}
    return Seen(Amount(0.1 + prompt_waits, 1e-4), Amount(COMPUTE + waits, 1e-5), traffic)


def made() -> Bill:
    wanted = cases("f1793c1c4", "llama", models.STANDARD["llama"], 2, check=True)
    return bill(2, {key: planted(key) for key in wanted})


def test_the_planted_cost_is_found() -> None:
    found = made()
    assert [cost.trips.value for cost in found.generated] == pytest.approx([1.0, 2.0])
    for cost in found.generated:
        assert (cost.up.value, cost.down.value) == (900, 300)
    for cost in found.prompt:
        assert (cost.up.value, cost.down.value) == (100, 40)
        assert cost.trips.value * PROMPT == pytest.approx(1.0)
    assert found.generated[0].up.error == 0
    assert 0 < found.generated[0].trips.error < 0.01


def test_a_prediction_is_right_where_the_cost_is() -> None:
    found = made()
    for delay in CHECKED_MS:
        assert predicted(found, delay) == pytest.approx(found.checked[delay])
    wrong = replace(found.generated[0], trips=replace(found.generated[0].trips, value=2.0))
    off = replace(found, generated=[wrong, found.generated[1]])
    assert predicted(off, 10) / found.checked[10] < 0.85


def test_bytes_that_were_not_counted_are_no_zero() -> None:
    wanted = cases("f1793c1c4", "llama", models.STANDARD["llama"], 2, check=False)
    seen = {key: planted(key) for key in wanted}
    hello: Any = {name: {"up": 33, "down": 36} for name in ("worker1", "worker2")}
    with pytest.raises(LabError, match="not counted"):
        bill(2, seen | {"base": replace(seen["base"], traffic=hello)})
    # A far run that was not counted says nothing of the error, and nothing else.
    assert bill(2, seen | {"far-1": replace(seen["far-1"], traffic=hello)}) == bill(2, seen)


def test_what_a_network_allows() -> None:
    cost = Cost(Amount(1000, 0), Amount(250, 0), Amount(2, 0))
    (slow,) = networks("10", "1M")
    assert slow == Network(0.010, 125000)
    assert at_best([cost], slow) == pytest.approx(1 / (2 * 0.010 + 1250 / 125000))
    assert at_best([cost] * 2, slow) == pytest.approx(at_best([cost], slow) / 2)


@pytest.mark.parametrize(
    ("rtt", "band", "flag"),
    [("fast", "1G", "--rtt"), ("1", "1X", "--bandwidth"), ("0", "1G", "--rtt")],
)
def test_a_wrong_network_names_the_flag(rtt: str, band: str, flag: str) -> None:
    with pytest.raises(InputError, match=flag):
        networks(rtt, band)


def test_a_larger_model_sends_wider_activations_and_longer_logits() -> None:
    tiny = header.read(models.build(models.STANDARD["llama"]).path)
    tokens = ["x"] * 1000
    real = replace(
        tiny,
        keys=tiny.keys | {"llama.embedding_length": 4096, "tokenizer.ggml.tokens": tokens},
    )
    cost = Cost(Amount(1000, 0), Amount(2000, 0), Amount(1, 0))
    first, last = scaled([cost, cost], tiny, real)
    wider = 4 * (4096 - 64)
    assert (first.up.value, first.down.value) == (1000 + wider, 2000 + wider)
    assert (last.up.value, last.down.value) == (1000 + wider, 2000 + 4 * (1000 - 354))
    assert scaled([cost], tiny, tiny) == [cost]
