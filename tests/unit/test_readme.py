"""The README stays true."""

import re
import tomllib
from pathlib import Path

from lab import cli, paths
from lab.case import load_cases

README = (paths.PROJECT / "README.md").read_text()


def test_the_example_scenario_is_a_good_one(tmp_path: Path) -> None:
    example = re.search(r"<!-- tested: scenario -->\n```toml\n(.*?)```", README, re.DOTALL)
    assert example
    file = tmp_path / "my.toml"
    file.write_text(example[1])
    ids = [case.id for case in load_cases(file)]
    assert len(ids) == 5
    assert "my-report[glm-dsa-2w-f1793c1c4-ts3-4]" in ids


def test_every_toml_example_is_toml() -> None:
    examples = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        tomllib.loads(example)


def test_every_path_that_it_names_exists() -> None:
    named = re.findall(r"`((?:lab|images|scenarios|docs)/[\w./-]*)`", README)
    linked = re.findall(r"\]\((docs/[^)]+)\)", README)
    assert len(named) > 4
    for name in [*named, *linked]:
        assert (paths.PROJECT / name).exists(), name


def test_every_make_door_that_it_names_exists() -> None:
    makefile = (paths.PROJECT / "Makefile").read_text()
    doors = set(re.findall(r"^make ([\w-]+)", README, re.MULTILINE))
    assert doors == {"scenario-28047", "test", "nightly"}
    for door in doors:
        assert re.search(rf"^{door.replace('28047', '%')}:", makefile, re.MULTILINE), door


def test_every_verb_that_it_names_exists() -> None:

    verbs = set(re.findall(r"`?rpclab (\w+)", README))
    assert verbs <= set(cli.VERBS), verbs - set(cli.VERBS)
