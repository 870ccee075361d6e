"""The search for the build that changed an outcome."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pytest
from made_case import case

from lab import paths, sources
from lab.bisect import report
from lab.bisect.marks import question, repeats
from lab.bisect.probe import chosen, on
from lab.bisect.run import GIVE_UP, Hunt, NotBuilt, Quest, Run
from lab.bisect.search import COMPILE, WARM, Search
from lab.bisect.steps import Step, between, steps
from lab.case import load_cases
from lab.errors import InputError, LabError
from lab.mark import Mark
from lab.outcome import Outcome
from lab.progress import Progress
from lab.sources import git

CRASH, OK, OTHER = Mark("crash", "create-node"), Mark("ok"), Mark("crash", "out-of-memory")
BUILDS = [f"b{number}" for number in range(10100, 10164)]


class Planted:
    """A probe whose builds do what was planted."""

    def __init__(
        self,
        what: Callable[[str], Mark | Iterator[Mark]],
        *,
        broken: tuple[str, ...] = (),
        warm: tuple[str, ...] = (),
        build: bool = True,
    ) -> None:
        self._what, self._broken, self._warm, self._build = what, broken, warm, build
        self.built: list[str] = []
        self.runs: list[str] = []

    def seconds(self, step: Step) -> float | None:
        if step.name in self._warm:
            return WARM
        return COMPILE if self._build else None

    def prepare(self, step: Step) -> None:
        if step.name in self._broken:
            raise NotBuilt("the build failed")
        if step.name not in self._warm:
            self.built.append(step.name)

    def run(self, step: Step) -> Run:
        self.runs.append(step.name)
        mark = self._what(step.name)
        mark = mark if isinstance(mark, Mark) else next(mark)
        return Run(mark, str(mark), None if mark == OK else f"line of {mark.signature}")


def until(last_bad: str) -> Callable[[str], Mark]:
    return lambda name: CRASH if name <= last_bad else OK


def hunt(
    path: Path, *, bad: str = BUILDS[0], good: str = BUILDS[-1], repeat: int | None = 1
) -> Hunt:
    row = [Step(name, name) for name in BUILDS]
    return Hunt(path, Quest("28047.toml", "glm-dsa-2w", "sdist", good, bad, row, repeat))


def go(it: Hunt, probe: Planted) -> list[str]:
    said: list[str] = []
    it.go(probe, said.append)
    return said


# --- the search -----------------------------------------------------------------------------------


@pytest.mark.parametrize("last_bad", [BUILDS[0], BUILDS[1], BUILDS[31], BUILDS[40], BUILDS[-2]])
def test_the_change_is_found_with_the_fewest_builds(tmp_path: Path, last_bad: str) -> None:
    it, probe = hunt(tmp_path), Planted(until(last_bad))
    go(it, probe)
    assert (it.search.old, it.search.between) == (last_bad, [])
    between_ends = len(probe.built) - 2
    assert between_ends <= math.ceil(math.log2(len(BUILDS) - 1))
    assert len(set(probe.built)) == len(probe.built)


def test_the_bad_end_may_be_the_newer(tmp_path: Path) -> None:
    it = hunt(tmp_path, bad=BUILDS[-1], good=BUILDS[0])
    go(it, Planted(lambda name: CRASH if name >= BUILDS[20] else OK))
    assert report.lines(it)[:2] == [f"first bad: {BUILDS[20]}", f"last good: {BUILDS[19]}"]


def test_a_build_that_does_not_compile_is_stepped_over(tmp_path: Path) -> None:
    it = hunt(tmp_path)
    broken = (BUILDS[31], BUILDS[32])
    go(it, Planted(until(BUILDS[32]), broken=broken))
    assert it.search.between == list(broken)
    text = "\n".join(report.lines(it))
    assert f"{BUILDS[31]}: the build failed" in text
    assert f"b10131 to b10133: `git log {BUILDS[30]}..{BUILDS[33]}`" in text
    assert report.found(it)


def test_if_nothing_compiles_the_search_ends(tmp_path: Path) -> None:
    it = hunt(tmp_path)
    with pytest.raises(LabError, match=f"{GIVE_UP} builds in a row"):
        go(it, Planted(until(BUILDS[5]), broken=tuple(BUILDS[1:-1])))


def test_another_failure_is_neither_good_nor_bad(tmp_path: Path) -> None:
    it = hunt(tmp_path)
    go(it, Planted(lambda n: OTHER if n == BUILDS[31] else until(BUILDS[30])(n)))
    assert it.search.between == [BUILDS[31]]
    assert "neither good nor bad" in it.tried[BUILDS[31]].reason


def test_ends_that_do_the_same_are_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="good and bad do the same"):
        go(hunt(tmp_path), Planted(lambda _: CRASH))


def test_only_what_is_there_is_tried_where_nothing_may_be_built(tmp_path: Path) -> None:
    it = hunt(tmp_path)
    warm = (BUILDS[0], BUILDS[10], BUILDS[30], BUILDS[-1])
    probe = Planted(until(BUILDS[20]), warm=warm, build=False)
    go(it, probe)
    assert (it.search.old, it.search.new) == (BUILDS[10], BUILDS[30])
    assert not probe.built
    assert not report.found(it)


def test_an_image_at_hand_is_taken_unless_it_tells_next_to_nothing() -> None:
    search = Search(BUILDS, {BUILDS[0]: "bad", BUILDS[-1]: "good"})
    assert search.next(lambda _: COMPILE) in (BUILDS[31], BUILDS[32])
    assert search.next(lambda n: WARM if n == BUILDS[10] else COMPILE) == BUILDS[10]
    assert search.next(lambda n: WARM if n == BUILDS[1] else COMPILE) != BUILDS[10]
    assert search.next(lambda n: None) is None


# --- runs of a build ------------------------------------------------------------------------------


def test_a_flaky_case_is_run_until_a_good_build_can_be_believed(tmp_path: Path) -> None:
    turns = {name: cycle([OK, OK, CRASH]) for name in BUILDS}
    it = hunt(tmp_path, repeat=None)
    go(it, Planted(lambda name: turns[name] if name <= BUILDS[22] else OK))
    assert (it.search.old, it.search.new) == (BUILDS[22], BUILDS[23])
    assert it.question is not None
    assert it.question.repeat >= 9
    assert len(it.tried[BUILDS[23]].runs) == it.question.repeat


def test_a_steady_case_is_run_little(tmp_path: Path) -> None:
    it, probe = hunt(tmp_path, repeat=None), Planted(until(BUILDS[22]))
    go(it, probe)
    assert probe.runs.count(BUILDS[22]) == 1
    assert probe.runs.count(BUILDS[23]) == 3


@pytest.mark.parametrize(("seen", "runs", "least"), [(3, 3, 3), (5, 10, 7), (1, 10, 26)])
def test_the_rarer_the_failure_the_more_runs(seen: int, runs: int, least: int) -> None:
    count = repeats(seen, runs)
    assert count == least
    assert (1 - (seen + 1) / (runs + 2)) ** count <= 0.01


def test_the_mark_is_the_signature_not_the_exit_code_nor_the_moment() -> None:
    one = Outcome("crash", node="head", phase="warmup", signature="s", exit=134, line="a 1")
    other = Outcome("crash", node="worker1", phase="decode", signature="s", exit=139, line="b 2")
    assert Mark.of(one) == Mark.of(other)
    assert Mark.of(one) != Mark.of(Outcome("crash", signature="t", exit=134))
    assert Mark.of(Outcome("ok")) == OK


def test_without_a_signature_the_line_is_taken_without_its_numbers() -> None:
    here = Mark.of(Outcome("crash", line="abort at 0x7f12 in node 30"))
    assert here == Mark.of(Outcome("crash", line="abort at 0x7fff in node 626"))
    assert here != Mark.of(Outcome("crash", line="segfault at 0x7f12 in node 30"))


def test_the_bad_mark_is_what_the_good_end_never_shows() -> None:
    asked = question([OK, CRASH, OK], [OK, OK], None)
    assert asked.bad == CRASH
    assert asked.side([OK, OK]) == "good"
    assert asked.side([OK, CRASH]) == "bad"
    assert asked.side([OK, OTHER]) is None


# --- stopped and gone on --------------------------------------------------------------------------


def test_a_killed_search_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = hunt(tmp_path / "whole")
    (tmp_path / "whole").mkdir()
    once = Planted(until(BUILDS[40]))
    go(whole, once)

    class Killed(Planted):
        def run(self, step: Step) -> Run:
            if len(self.runs) == 4:
                raise KeyboardInterrupt
            return super().run(step)

    (tmp_path / "cut").mkdir()
    first = Killed(until(BUILDS[40]))
    with pytest.raises(KeyboardInterrupt):
        go(hunt(tmp_path / "cut"), first)
    rest = Planted(until(BUILDS[40]))
    again = Hunt.load(tmp_path / "cut")
    go(again, rest)
    assert report.lines(again) == report.lines(whole)
    assert first.runs + rest.runs == once.runs


def test_there_may_be_no_search(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no search in it"):
        Hunt.load(tmp_path)


def test_a_moments_trouble_of_the_lab_loses_no_build(tmp_path: Path) -> None:
    class Shaky(Planted):
        shaken = False

        def run(self, step: Step) -> Run:
            if not self.shaken:
                self.shaken = True
                raise LabError("the engine is busy")
            return super().run(step)

    it = hunt(tmp_path)
    go(it, Shaky(until(BUILDS[7])))
    assert it.search.old == BUILDS[7]


# --- which case, which builds ---------------------------------------------------------------------


def test_a_case_is_named_without_its_pin() -> None:
    cases = load_cases(paths.SCENARIOS / "28047.toml")
    assert chosen(cases, "glm-dsa-2w", "x").model_name == "glm-dsa"
    assert "-nkvo" in chosen(cases, "glm-dsa-2w-nkvo", "x").args
    assert chosen(cases, "glm-dsa-2w-f1793c1c4", "x").head.pin == "f1793c1c4"
    with pytest.raises(InputError, match=r"unknown case 'glm-dsa-9w' \(did you mean"):
        chosen(cases, "glm-dsa-9w", "x")


def test_rows_that_ask_for_different_things_must_be_told_apart() -> None:
    other = case(id="28047[glm-dsa-2w-1548a240e]", args=("-ngl", "0"))
    other = on(other, "1548a240e")
    with pytest.raises(InputError, match="is not the same on every pin"):
        chosen([case(), other], "glm-dsa-2w", "x")


def test_the_pin_is_replaced_on_every_node() -> None:
    moved = on(case(), "b10724")
    assert {spec.pin for spec in moved.images} == {"b10724"}
    assert moved.id == "28047[glm-dsa-2w-b10724]"


def test_ends_are_builds_or_pins() -> None:
    there = [10326, 10338, 10705, 10724, 10816]
    assert between(there, "b10724", "10338") == [10338, 10705, 10724]
    assert between(there, "74ce15741", "1548a240e") == [10338, 10705, 10724, 10816]
    with pytest.raises(InputError, match="b10700 is not released as an sdist; the nearest are"):
        between(there, "10700", "10816")
    with pytest.raises(InputError, match="not a build"):
        between(there, "master", "10816")


# --- git, on planted commits ----------------------------------------------------------------------


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A repository of 20 commits; the bug goes in the 13th (`FIXED` appears)."""
    monkeypatch.setenv("RPCLAB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "upstream"
    folder.mkdir()
    _git(folder, "init", "--quiet", "--initial-branch=master")
    _git(folder, "config", "uploadpack.allowFilter", "true")
    hashes = []
    for number in range(1, 21):
        fixed = "FIXED" if number >= 13 else "BROKEN"
        (folder / "CMakeLists.txt").write_text(f"# {number} {fixed}\n")
        _git(folder, "add", ".")
        author = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        _git(folder, *author, "commit", "--quiet", f"--message={number}")
        hashes.append(_git(folder, "rev-parse", "HEAD"))
        _git(folder, "tag", f"b{10000 + number}")
    monkeypatch.setenv(git.VARIABLE, f"file://{folder}")
    return hashes


class FromSource(Planted):
    """What a build does stands in its source, really fetched at the step's commit."""

    def __init__(self) -> None:
        super().__init__(lambda _: OK)

    def run(self, step: Step) -> Run:
        self.runs.append(step.name)
        tree = sources.fetch(step.pin(), "git", Progress())
        assert tree.origin.commit == step.commit
        fixed = "FIXED" in (tree.path / "CMakeLists.txt").read_text()
        mark = OK if fixed else CRASH
        return Run(mark, str(mark), None if fixed else "invalid data ptr")


@pytest.mark.parametrize("by_tag", [False, True])
def test_a_planted_commit_is_found(tmp_path: Path, upstream: list[str], by_tag: bool) -> None:
    ends = ("b10020", "b10001") if by_tag else (upstream[-1], upstream[0])
    row = steps("git", *ends)
    assert [step.commit for step in row] == upstream
    quest = Quest("x", "y", "git", row[-1].name, row[0].name, row, 1)
    probe = FromSource()
    it = Hunt(tmp_path, quest)
    go(it, probe)
    text = report.lines(it)
    assert text[0] == f"first good: {upstream[12][:9]}"
    assert f"the change is commit {upstream[12]}" in text
    assert any("log: invalid data ptr" in line for line in text)
    assert len(probe.built) - 2 <= math.ceil(math.log2(19))


def test_the_same_commit_twice_is_wrong_input(upstream: list[str]) -> None:
    with pytest.raises(InputError, match="are the same"):
        steps("git", upstream[0], "b10001")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
