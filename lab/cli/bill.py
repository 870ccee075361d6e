"""`rpclab bill`: what a link costs, and what a network allows at best."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from lab import engine, evidence, images, models, paths, pins, terminal
from lab.bill import measure, network
from lab.bill.measure import Bill, Cost
from lab.errors import Exit, InputError
from lab.images import ImageSpec
from lab.plan import header as headers
from lab.plan.header import Header
from lab.pool import Pool
from lab.toml import unknown

LARGEST_MISS = 0.15
"""By how much a prediction may be off."""


def command(
    model: Annotated[str, typer.Argument(help="A model of `rpclab models`, or a GGUF file.")],
    pin: Annotated[str, typer.Option(help="The build to measure.")] = "f1793c1c4",
    workers: Annotated[int, typer.Option(min=1, max=5, help="From one worker to so many.")] = 5,
    rtt: Annotated[
        str, typer.Option(help="Round-trip times of a link, ms: `0.1,1,10`.")
    ] = "0.1,1,10",
    bandwidth: Annotated[
        str, typer.Option(help="Bandwidths of a link, bits per second: `1G,10G`.")
    ] = "1G,10G",
    check: Annotated[
        bool, typer.Option(help="Hold the prediction against runs at three other delays.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure bytes and round trips of each link for a token, and say what a network allows.

    Bytes are toxiproxy's count, from runs that differ by a known number of tokens; round trips are
    the slope of time over two delays of one link. What a network allows "at best" leaves out all
    computing. A GGUF file is not run: the model of the lab with its architecture is, and its bytes
    are scaled by width and vocabulary.

    Exits 1 where a checked prediction is off by more than 15 %.

    Example: `rpclab bill llama --workers 3 --rtt 0.2,5 --bandwidth 10G --check`
    """
    name, real = _model(model)
    nets = network.networks(rtt, bandwidth)
    if pin not in pins.load_pins():
        raise InputError(unknown("pin", pin, sorted(pins.load_pins())), where="--pin")
    engine.client().close()
    images.ensure(ImageSpec(pin))
    images.ensure_toxiproxy()
    spec = models.STANDARD[name]
    tiny = headers.read(models.build(spec).path)
    path = evidence.new_run(paths.runs() / "bills", f"{name}-{pin}")
    err, out = terminal.err(), terminal.out()
    err.print(f"measuring: {path}", soft_wrap=True)

    def say(line: str) -> None:
        err.print(line, markup=False, soft_wrap=True)

    bills = []
    # One at a time: what is measured is time.
    with Pool(path, 1, None) as pool:
        for count in range(1, workers + 1):
            wanted = measure.cases(pin, name, spec, count, check=check)
            bills.append(measure.bill(count, measure.measure(pool, wanted, say)))
    facts = _facts(name, pin, bills, nets, tiny, real)
    evidence.Evidence(path).write("bill.json", facts)
    if as_json:
        print(json.dumps(facts, indent=1))
    else:
        out.print(_costs(f"{name} at {pin}: each link, for a token", bills))
        what = "at best, with no computing at all: generated tokens per second"
        out.print(_allowed(f"{model}, {what}", facts["at_best"]))
        if check:
            out.print(_checks(facts["checks"]))
        out.print(f"evidence: {path}", soft_wrap=True)
    off = any(abs(row["miss"]) > LARGEST_MISS for row in facts["checks"])
    raise typer.Exit(Exit.FAIL if off else Exit.OK)


def _model(word: str) -> tuple[str, Header | None]:
    """The lab's model to run, and the real one that was meant."""
    if word in models.STANDARD:
        return word, None
    if not word.endswith(".gguf"):
        raise InputError(unknown("model", word, sorted(models.STANDARD)), where="MODEL")
    real = headers.read(Path(word))
    for name, spec in models.STANDARD.items():
        if spec.arch == real.arch:
            return name, real
    known = sorted({spec.arch for spec in models.STANDARD.values()})
    raise InputError(unknown("architecture", real.arch, known), where=word)


def _facts(
    name: str,
    pin: str,
    bills: list[Bill],
    nets: list[network.Network],
    tiny: Header,
    real: Header | None,
) -> dict[str, Any]:
    def costs(bill: Bill) -> list[Cost]:
        return network.scaled(bill.generated, tiny, real) if real else bill.generated

    return {
        "model": name,
        "pin": pin,
        "bills": [asdict(bill) for bill in bills],
        "at_best": [
            {"workers": bill.workers}
            | {str(net): network.at_best(costs(bill), net) for net in nets}
            for bill in bills
        ],
        "checks": [
            {
                "workers": bill.workers,
                "delay_ms": delay,
                "measured": measured,
                "predicted": network.predicted(bill, delay),
                "miss": network.predicted(bill, delay) / measured - 1,
            }
            for bill in bills
            for delay, measured in bill.checked.items()
        ],
    }


def _costs(title: str, bills: list[Bill]) -> Table:
    columns = ("workers", "link", "token", "bytes to it", "bytes from it", "round trips")
    table = Table(*columns, title=title, box=None)
    for bill in bills:
        for what, costs in (("prompt", bill.prompt), ("generated", bill.generated)):
            for number, cost in enumerate(costs, 1):
                values = (cost.up, cost.down, cost.trips)
                row = (str(bill.workers), f"worker{number}", what, *map(str, values))
                table.add_row(*row)
    return table


def _allowed(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(*rows[0], title=title, box=None)
    for row in rows:
        table.add_row(*(f"{value:.4g}" for value in row.values()))
    return table


def _checks(rows: list[dict[str, Any]]) -> Table:
    columns = ("workers", "delay each way", "predicted", "measured", "off by")
    table = Table(*columns, title="predicted and measured: generated tokens per second", box=None)
    for row in rows:
        table.add_row(
            str(row["workers"]),
            f"{row['delay_ms']} ms",
            f"{row['predicted']:.2f}",
            f"{row['measured']:.2f}",
            f"{100 * row['miss']:+.1f} %",
        )
    return table
