"""What a network allows, from the cost of each link. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lab.bill.measure import Amount, Bill, Cost
from lab.errors import InputError
from lab.plan.header import Header

UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
FLOAT = 4
"""Bytes of an activation or a logit."""


@dataclass(frozen=True)
class Network:
    """Of every link: `rtt` in seconds, there and back; `bandwidth` in bytes per second."""

    rtt: float
    bandwidth: float

    def __str__(self) -> str:
        return f"{1000 * self.rtt:g} ms, {8 * self.bandwidth / 1e9:g} Gbit/s"


def networks(rtts: str, bandwidths: str) -> list[Network]:
    """Each round-trip time (`0.1,1`: ms) with each bandwidth (`1G,10G`: bits per second).

    Raises:
        InputError: something else.
    """
    return [
        Network(_number("--rtt", rtt, r"") / 1000, _number("--bandwidth", band, "[kmg]?") / 8)
        for rtt in rtts.split(",")
        for band in bandwidths.split(",")
    ]


def seconds(costs: Iterable[Cost], network: Network) -> float:
    """What the links add to a token: one waits for the other."""
    return sum(
        cost.trips.value * network.rtt + (cost.up.value + cost.down.value) / network.bandwidth
        for cost in costs
    )


def at_best(costs: Iterable[Cost], network: Network, compute: float = 0.0) -> float:
    """Tokens per second. `compute`: seconds of a token without the links."""
    return 1 / max(compute + seconds(costs, network), 1e-9)


def predicted(bill: Bill, delay_ms: int) -> float:
    """Generated tokens per second of the measured model where all links have this delay each way.

    The links' bytes cost nothing between containers: `compute` has them.
    """
    trips = sum(cost.trips.value for cost in bill.generated)
    return 1 / (bill.compute.value + trips * 2 * delay_ms / 1000)


def scaled(costs: Sequence[Cost], tiny: Header, real: Header) -> list[Cost]:
    """The links of a larger model of the same architecture: wider activations both ways, and over
    the last link the logits of a larger vocabulary. Round trips stay. Computed, not measured."""
    wider = FLOAT * (_width(real) - _width(tiny))
    logits = FLOAT * (_vocabulary(real) - _vocabulary(tiny))
    last = len(costs) - 1
    return [
        replace(
            cost,
            up=_more(cost.up, wider),
            down=_more(cost.down, logits if number == last else wider),
        )
        for number, cost in enumerate(costs)
    ]


def _more(amount: Amount, bytes_: int) -> Amount:
    return Amount(amount.value + bytes_, amount.error)


def _width(header: Header) -> int:
    return int(header.key("embedding_length")) * int(header.key("hyper_connection.count", 1))


def _vocabulary(header: Header) -> int:
    return len(header.keys.get("tokenizer.ggml.tokens", [])) or int(header.key("vocab_size", 1))


def _number(flag: str, word: str, unit: str) -> float:
    found = re.fullmatch(rf"(\d+(?:\.\d+)?)({unit})", word.strip().lower())
    if not found or not float(found[1]):
        example = "0.1,1" if flag == "--rtt" else "1G,10G"
        raise InputError(f"{word!r} is no number like {example}", where=flag)
    return float(found[1]) * UNITS[found[2]]
