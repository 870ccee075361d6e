"""Who owns what: only an owner that is certainly dead may be cleaned up behind."""

import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from lab.owner import CASE, KEEP, OWNER, RUN, Owner, labels


@pytest.fixture
def me() -> Owner:
    return Owner.of(os.getpid())


def test_this_process_lives(me: Owner) -> None:
    assert me.lives()
    assert me.pid == os.getpid()


def test_a_label_names_the_owner_it_was_made_from(me: Owner) -> None:
    assert Owner.parse(str(me)) == me


def test_a_process_is_the_same_owner_whenever_and_whoever_asks(me: Owner) -> None:
    asked = f"from lab.owner import Owner; print(Owner.of({os.getpid()}))"
    answer = subprocess.check_output([sys.executable, "-c", asked], text=True)
    assert answer.strip() == str(me)


@pytest.mark.skipif(not psutil.LINUX, reason="looks into psutil for Linux")
def test_an_owner_survives_a_change_of_the_clock(
    me: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What psutil adds to the ticks since boot; the kernel moves it with each correction.
    now = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: now + 1)
    assert me.lives()


def test_a_dead_process_does_not_live() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        owner = Owner.of(process.pid)
        assert owner.lives()
        process.kill()
    assert not owner.lives()


def test_a_dead_process_that_nobody_collected_does_not_live() -> None:
    process = subprocess.Popen(["sleep", "60"])
    owner = Owner.of(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not owner.lives()
    process.wait()


def test_a_later_process_with_the_same_number_is_another(me: Owner) -> None:
    assert not replace(me, started="1").lives()


@pytest.mark.parametrize("host", ["other/12345678", "", "vm/00000000"])
def test_an_owner_on_another_host_counts_as_alive(me: Owner, host: str) -> None:
    assert Owner(host, 1 << 30, me.started).lives()


@pytest.mark.parametrize(
    "label", ["", "x", "|", "||", "host|12", "host|12|", "host|pid|1.0", "host|-1|1.0", "host||1.0"]
)
def test_rubbish_names_no_owner(label: str) -> None:
    assert Owner.parse(label) is None


def test_labels_say_run_case_and_owner(me: Owner) -> None:
    assert labels("run", "case") == {RUN: "run", CASE: "case", OWNER: str(me)}
    assert labels("run", "case", keep=True)[KEEP] == "yes"
