"""`make plan-grid`: the plan held against real heads, over many flags and all the lab's models."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from lab import models
from lab.plan import devices, flags, header, heads
from lab.plan.compare import Logged, differences, explained
from lab.plan.warnings import Scene

BASE = "-t 1 -fit off --no-warmup -c 2048 -np 1"
ONE, TWO = (heads.endpoints(2)[index] for index in (0, 1))

LINES: tuple[tuple[int, str], ...] = (
    # workers, flags added to BASE; the last spelling of a flag counts, as in the head
    (1, "-ngl 99"),
    (1, ""),
    (2, ""),
    (4, ""),
    (5, "-ngl auto"),
    (2, "-ngl all -ts 3,4"),
    (2, "-ngl 0"),
    (2, "-ngl 1"),
    (2, "-ngl 3"),
    (3, "-ngl 5 -ts 1,2,3"),
    (2, "-ngl 7 -ts 1/6"),
    (2, "-ngl 99 -ts 6,1 --no-mmap"),
    (2, "-ngl 99 -ts 0,1"),
    (2, "-ngl 99 -ts 1"),
    (3, "-ngl 99 -ts 0.3,0.3,0.4"),
    (3, "-ngl 99 -ts 2,0,1"),
    (4, "-ngl 99 -ts 1,2,1,3"),
    (5, "-ngl 99 -ts 1,1,1,1,3"),
    (5, "-ngl 99 -ts 0,0,1,0,2"),
    (2, "-ngl 99 -sm none"),
    (3, "-ngl 99 -sm none -mg 1"),
    (3, "-ngl 4 -sm none -ts 1,2,3"),
    (3, "-ngl 99 -dev RPC2,RPC0 -ts 2,5"),
    (2, "-ngl 99 -ts 3,4 -cmoe"),
    (2, "-ngl 99 -ts 3,4 --n-cpu-moe 3"),
    (3, "-ngl 99 -ts 1,2,4 -ncmoe 99 --no-mmap"),
    (2, "-ngl 5 -ts 1,3 -ncmoe 4"),
    (2, "-ngl 99 -ts 3,4 -ncffn 2 -lm none"),
    (2, f"-ngl 99 -ts 3,4 -ot blk\\.[0-3]\\..*=RPC0[{ONE}],blk\\.[4-9]\\..*=RPC0[{TWO}]"),
    (2, f"-ngl 99 -ts 3,4 -ot exps=RPC0[{TWO}]"),
    (2, f"-ngl 0 -ot blk\\.2\\.=RPC0[{TWO}]"),
    (2, "-ngl 99 -ts 5,2 -ot ffn_(up|down)=CPU"),
    (2, f"-ngl 99 -ts 5,2 -cmoe -ot blk\\.1\\..*exps=RPC0[{TWO}]"),
    (2, f"-ngl 99 -ts 5,2 -ot blk\\.1\\..*exps=RPC0[{TWO}] -cmoe"),
    (2, f"-ngl 99 -ts 5,2 -ot token_embd=RPC0[{ONE}] -ot output.*=CPU --no-mmap"),
    (2, "-ngl 99 -ts 3,4 -nkvo"),
    (3, "-ngl 4 -ts 1,1,2 -nkvo"),
    (2, "-ngl 99 -ts 3,4 -c 1000"),
    (2, "-ngl 99 -ts 3,4 -c 4096 -np 3"),
    (2, "-ngl 99 -ts 3,4 -c 4096 -np 4 -kvu"),
    (2, "-ngl 99 -ts 3,4 -c 3000 -np auto"),
    (2, "-ngl 99 -ts 3,4 -c 8192 -ub 1024 -b 1024"),
    (2, "-ngl 99 -ts 3,4 -c 8192 -ub 64 -np 2"),
    (2, "-ngl 99 -ts 3,4 -c 8192 -b 256"),
    (2, "-ngl 99 -ts 3,4 --swa-full -c 4096 -np 2"),
    (2, "-ngl 99 -ts 3,4 -ctk q8_0 -ctv q8_0 -fa on"),
    (2, "-ngl 99 -ts 3,4 -ctk f32 -ctv f32 -fa off"),
    (3, "-ngl 99 -ts 1,5,1 -ctk bf16 -ctv bf16 -np 2"),
    (2, "-ngl 99 -ts 3,4 -ctk f32"),
    (2, "-ngl 99 -ts 3,4 -ctv q8_0 -fa off"),
    (2, "-ngl 99 -ts 3,4 -ctk q4_0 -ctv q4_0 -fa on -nkvo"),
    (2, "-ts 3,4 -fit on"),
    (3, "-fit on"),
)
"""Splits by memory are kept off ties: at one, the last byte of free memory would decide."""


@dataclass(frozen=True)
class Combination:
    """One head to compare: a standard model's name, workers, the whole command line."""

    model: str
    workers: int
    line: str

    @property
    def words(self) -> tuple[str, ...]:
        """The command line, as a shell would part it."""
        return tuple(f"{BASE} {self.line}".replace("-np auto", "-np -1").split())

    def scene(self) -> Scene:
        """What the plan says of it."""
        model = header.read(models.build(models.STANDARD[self.model]).path)
        ends = heads.endpoints(self.workers)
        # The workers are on one host: they report the same memory.
        given = devices.parse([f"RPC{n}={end},16G" for n, end in enumerate(ends)])
        return Scene.of(model, flags.parse(list(self.words)), given)

    def head(self) -> heads.Head:
        """The real one."""
        # With -fit on the head makes caches twice: one is only tried.
        until = heads.UP if "-fit on" in self.line else heads.PLACED
        path = models.build(models.STANDARD[self.model]).path
        return heads.Head(path, self.workers, self.words, until)

    def __str__(self) -> str:
        return f"{self.model}, {self.workers} workers: {self.line or '(no more flags)'}"


ALL = tuple(Combination(name, workers, line) for name in models.STANDARD for workers, line in LINES)
"""Every line with every model."""


def compare(combinations: list[Combination]) -> dict[Combination, list[str]]:
    """Each with its differences, in one container."""
    seen = heads.run([one.head() for one in combinations])
    return {
        one: differences(one.scene(), Logged.read(head.lines))
        for one, head in zip(combinations, seen, strict=True)
    }


def main() -> int:
    """Compare all, print what differs; 1 where a difference is not explained."""
    began = time.monotonic()
    found = compare(list(ALL))
    open_, known = 0, 0
    for one, lines in found.items():
        for line in lines:
            why = explained(line)
            known += why is not None
            open_ += why is None
            print(f"{one}\n    {line}" + (f"\n    explained: {why}" if why else ""))
    print(
        f"{len(found)} combinations of {len(LINES)} lines and {len(models.STANDARD)} models "
        f"against heads of {heads.PIN}: {open_} differences, {known} explained; "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if open_ else 0


if __name__ == "__main__":
    sys.exit(main())
