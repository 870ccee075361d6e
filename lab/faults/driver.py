"""Injects the faults of a case at their moments, and writes down what it did.

The timeline gets, for each injection:

    {"event": "fault-begin", "fault": 0, "round": 1, "kind": "latency", "on": "worker1",
     "kills": false, "seconds": 0.012, "read_back": {...}}
    {"event": "fault-end", "fault": 0, "round": 1, "kind": ..., "on": ..., "by": "moment" | "case"}
    {"event": "health", "when": "before" | "after" | "end", "fault": 0, "head": "ok",
     "workers": {"worker1": "running"}}

`by: case`: the fault lasted to the end of the case. "fault" counts a row's `faults`, then its
`under`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from lab.errors import LabError
from lab.evidence import Evidence
from lab.faults import acts
from lab.faults.base import Fault
from lab.faults.moments import Mark, Moment, Watch
from lab.topology import Topology
from lab.workload import Requests

POLL_SECONDS = 0.005
HEALTH_SECONDS = 1.0
SETTLE_SECONDS = 60.0
"""How long the rounds of a fault that ends by the clock are waited for, once the work is done."""


@dataclass
class _Track:
    """One fault on its way through its rounds."""

    number: int
    fault: Fault
    targets: list[str]
    mark: Mark
    state: str = "waiting"
    """`waiting` for `at`, `active`, `pausing` between two rounds, `done`."""
    rounds: int = 0

    def moment(self) -> Moment:
        """What it waits for now."""
        if self.state == "pausing":
            return Moment(seconds=self.fault.pause)
        moment = self.fault.at if self.state == "waiting" else self.fault.until
        return moment or Moment(before="shutdown")

    def by_the_clock(self) -> bool:
        """Whether what it waits for comes by itself."""
        return self.state in ("active", "pausing") and bool(
            self.moment().seconds is not None or self.moment().between
        )


class Driver:
    """The faults of one case. Use as a context manager, inside the topology's."""

    def __init__(self, faults: Sequence[Fault], evidence: Evidence) -> None:
        self._faults, self._evidence = faults, evidence
        self._tracks: list[_Track] = []
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._error: LabError | None = None
        self._thread = threading.Thread(target=self._follow, name="faults", daemon=True)
        self._topology: Topology
        self._watch: Watch

    def before_head(self, topology: Topology) -> None:
        """All else is up, the head is not yet started. Raises `LabError`."""
        if not self._faults:
            return
        self._topology = topology
        self._watch = Watch(self._evidence, topology)
        workers = len(topology.plan.workers)
        self.note_memory("before")
        for number, fault in enumerate(self._faults):
            targets = fault.targets(workers)
            mark = self._watch.mark(fault.at, targets[0])
            self._tracks.append(_Track(number, fault, targets, mark))
            for target in targets:
                fault.prepare(topology, target)
        self._come("start")

    def __enter__(self) -> Driver:
        if self._tracks:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(SETTLE_SECONDS)

    def wants_progress(self) -> bool:
        """Whether a moment counts prompt tokens."""
        moments = [m for fault in self._faults for m in (fault.at, fault.until) if m]
        return any(moment.prompt_tokens for moment in moments)

    def watch(self, requests: Requests) -> None:
        """Tokens are counted on these from now on."""
        if self._tracks:
            self._watch.requests = requests

    def check(self) -> None:
        """Raises `LabError` where a fault could not be injected."""
        if self._error:
            raise self._error

    def _settle(self, nothing_left: bool) -> None:
        """Wait for the begin that is under way, and for the rounds of faults that end by the clock
        unless there is nothing left that they meet."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while self._waits_for_the_clock() and not nothing_left:
            self.check()
            if time.monotonic() > deadline:
                raise LabError(f"a fault did not end within {SETTLE_SECONDS:g} s of the work's end")
            time.sleep(POLL_SECONDS)
        self.check()

    def _waits_for_the_clock(self) -> bool:
        with self._lock:
            return any(track.by_the_clock() for track in self._tracks)

    def before_probe(self, nothing_left: bool) -> None:
        """The work is done; one more request will be sent if the head lives. Raises `LabError`."""
        self._settle(nothing_left)
        if self._tracks and not nothing_left:
            self._come("probe")
            self._settle(nothing_left)

    def before_shutdown(self) -> None:
        """Nothing more is asked; the head is not yet told to stop. Raises `LabError`."""
        if not self._tracks:
            return
        self.note_health("end")
        self._come("shutdown")

    def close(self) -> None:
        """No fault begins or ends from here on; those that still act end with the case."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(SETTLE_SECONDS)
        self.check()
        for track in self._tracks:
            if track.state == "active" and track.fault.lasts:
                self._event("fault-end", track, by="case")

    def note_health(self, when: str, **facts: Any) -> None:
        """Write down how head and workers stand."""
        self._evidence.event(
            "health",
            when=when,
            **facts,
            head=head_health(self._topology),
            workers={
                name: acts.worker_health(self._topology, name)
                for name in sorted(self._topology.nodes)
                if name.startswith("worker")
            },
        )

    def note_memory(self, when: str) -> None:
        """Write down what each worker holds: `before` the head came, `after` it is gone."""
        if not self._faults:
            return
        names = [name for name in self._topology.nodes if name.startswith("worker")]
        held = {name: acts.memory(self._topology, name) for name in sorted(names)}
        self._evidence.event("memory", when=when, bytes=held)

    def _come(self, moment: str) -> None:
        """A moment that only the course of the case brings."""
        with self._lock:
            for track in self._tracks:
                if track.state == "waiting" and track.fault.at.before == moment:
                    self._begin(track)
        self.check()

    def _follow(self) -> None:
        while not self._over.wait(POLL_SECONDS) and not self._error:
            with self._lock:
                for track in self._tracks:
                    self._step(track)

    def _step(self, track: _Track) -> None:
        if track.state == "done" or self._error:
            return
        try:
            come = self._watch.reached(track.moment(), track.mark, track.targets[0])
        except Exception as error:  # in a thread: nobody else would tell
            self._fail(track, error)
            return
        if come and track.state == "active":
            self._end(track)
        elif come:
            self._begin(track)

    def _begin(self, track: _Track) -> None:
        if self._too_late(track):
            track.state = "done"
            return
        track.rounds += 1
        try:
            self.note_health("before", fault=track.number)
            began = time.time()
            back = {name: track.fault.begin(self._topology, name) for name in track.targets}
            took = time.time() - began
            self._event(
                "fault-begin",
                track,
                kills=track.fault.kills,
                starves=track.fault.starves,
                targets=track.targets,
                began=round(began, 4),
                seconds=round(took, 4),
                read_back=back,
            )
            self._mark(track, track.fault.until, began)
            track.state = "active"
            self.note_health("after", fault=track.number)
        except Exception as error:  # in a thread: nobody else would tell
            if self._too_late(track):
                track.state = "done"
            else:
                self._fail(track, error)

    def _too_late(self, track: _Track) -> bool:
        """The node ended by itself: an observation (`aftermath` calls the fault missed)."""
        ended = any(self._topology.nodes[name].exited.is_set() for name in track.targets)
        return ended and not track.fault.of_link

    def _end(self, track: _Track) -> None:
        try:
            back = {name: track.fault.end(self._topology, name) for name in track.targets}
            self._event("fault-end", track, by="moment", read_back=back)
            self._mark(track, None, time.time())
            track.state = "pausing" if track.rounds < track.fault.times else "done"
            self.note_health("after", fault=track.number)
        except Exception as error:  # in a thread: nobody else would tell
            if not self._ends_of_it(track):
                self._fail(track, error)
            track.state = "done"

    def _ends_of_it(self, track: _Track) -> bool:
        """The node died of the fault's end itself, as a worker does that answers to nobody."""
        nodes = [self._topology.nodes[name] for name in track.targets]
        return not track.fault.of_link and any(node.exited.wait(1.0) for node in nodes)

    def _mark(self, track: _Track, moment: Moment | None, at: float) -> None:
        found = self._watch.mark(moment or Moment(seconds=0.0), track.targets[0])
        track.mark = Mark(at, found.after, found.tokens, found.prompt_tokens, found.bytes)

    def _fail(self, track: _Track, error: Exception) -> None:
        kind, on = track.fault.kind, track.fault.on
        self._error = LabError(f"the fault {kind} on {on} ({track.state}): {error}")

    def _event(self, name: str, track: _Track, **facts: Any) -> None:
        fault = track.fault
        self._evidence.event(
            name, fault=track.number, round=track.rounds, kind=fault.kind, on=fault.on, **facts
        )


def head_health(topology: Topology) -> str:
    """`ok`, `busy` (another answer), `silent` (none in time), `gone`, `absent` (not started)."""
    head = topology.nodes.get("head")
    if head is None:
        return "absent"
    if head.exited.is_set():
        return "gone"
    try:
        answer = httpx.get(f"{topology.url}/health", timeout=HEALTH_SECONDS)
    except httpx.TimeoutException:
        return "silent"
    except httpx.HTTPError:
        # The connection can break an instant before the engine reports the exit.
        return "gone" if head.exited.wait(HEALTH_SECONDS) else "silent"
    return "ok" if answer.status_code == httpx.codes.OK else "busy"
