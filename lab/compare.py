"""Is an answer right? Compares it with the reference's, token by token. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.scenario import Workload


@dataclass(frozen=True)
class Comparison:
    """What was found; `wrong` is None where the answer is right."""

    wrong: str | None = None
    worst: float = 0.0
    """Largest difference of a token's log-probability, nats."""
    tie: bool = False
    """Rounding decided a token; what follows it was not compared."""


def compare(answer: dict[str, Any], right: dict[str, Any], workload: Workload) -> Comparison:
    """Compare one answer (`answers.json`) with the reference's.

    With `workload.ties` another token is right too where the reference gives it nearly the
    log-probability of its own: each side may be off by the tolerance.
    """
    if answer["prompt_tokens"] != right["prompt_tokens"]:
        return Comparison(f"{answer['prompt_tokens']} prompt tokens, not {right['prompt_tokens']}")
    got, want = answer["tokens"], right["tokens"]
    worst = 0.0
    for place, (token, wanted) in enumerate(zip(got, want, strict=False)):
        if token != wanted:
            if workload.ties and _is_tie(right, place, token, workload.tolerance):
                return Comparison(worst=worst, tie=True)
            return Comparison(_differs(place, want), worst)
        a, b = answer["logprobs"][place], right["logprobs"][place]
        # The server writes what is not finite as null.
        if a is None or b is None:
            if a is not b:
                return Comparison(
                    f"the log-probability of token {place + 1} is {a}, not {b}", worst
                )
        else:
            worst = max(worst, abs(a - b))
            if worst > workload.tolerance:
                return Comparison(f"log-probabilities differ by up to {worst:.3g}", worst)
    if len(got) != len(want):
        return Comparison(_differs(min(len(got), len(want)), want), worst)
    return Comparison(worst=worst)


def _differs(place: int, want: list[int]) -> str:
    return f"token {place + 1} of {len(want)} differs from the reference"


def _is_tie(right: dict[str, Any], place: int, token: int, tolerance: float) -> bool:
    best = right["logprobs"][place]
    others = dict(right["top"][place])
    return best is not None and token in others and best - others[token] <= 2 * tolerance
