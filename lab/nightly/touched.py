"""What a pull request touches: changed paths -> scenarios to run. Pure.

`git diff --name-only origin/master... | python -m lab.nightly.touched` prints their names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from lab import paths
from lab.case import Case, load_cases

NOTHING = ("docs/", "README.md", "tests/", ".github/", ".gitignore", "lab/cli/", "lab/nightly/")
"""Prefixes of paths that no case's outcome depends on: the unit tests look after them."""
QUICK = ("28047",)
"""What runs for a change of the lab itself, besides the tests: the widest scenario."""


def touched(changed: Iterable[str], scenarios: Mapping[str, list[Case]]) -> list[str]:
    """The scenarios to run, sorted.

    Args:
        changed: paths in the repository, with slashes.
        scenarios: what there is: name -> cases.

    A scenario file touches itself; a flavour's folder, a variant or a model's module the scenarios
    with a case of it; anything else that is not known to be harmless the quick ones.
    """
    found: set[str] = set()
    for path in changed:
        found |= _of(PurePosixPath(path), scenarios)
    return sorted(found & set(scenarios))


def _of(path: PurePosixPath, scenarios: Mapping[str, list[Case]]) -> set[str]:
    def having(*words: str) -> set[str]:
        return {
            name
            for name, cases in scenarios.items()
            if any(set(words) & _words(case) for case in cases)
        }

    match path.parts:
        case ("scenarios", name) if name.endswith(".toml"):
            return {name.removesuffix(".toml")}
        case ("images", "variants", name):
            return having(f"variant {PurePosixPath(name).stem}")
        case ("images", flavour, *_) if flavour not in ("pins.toml", "toxiproxy"):
            return having(f"flavour {flavour}")
        case ("lab", "models", name) if name not in ("__init__.py", "base.py", "spec.py"):
            return having(f"arch {PurePosixPath(name).stem.replace('_', '-')}")
    if any(str(path).startswith(prefix) for prefix in NOTHING):
        return set()
    return set(QUICK)


def _words(case: Case) -> set[str]:
    """What a case is made of."""
    words = {f"arch {case.model.arch}"} | ({f"arch {case.draft.arch}"} if case.draft else set())
    for spec in case.images:
        words |= {f"flavour {spec.flavour}", f"variant {spec.variant}"}
    return words


def main() -> None:
    """Paths on standard input, names of scenarios on standard output."""
    files = sorted(paths.SCENARIOS.glob("*.toml"))
    print(*touched(sys.stdin.read().split(), {file.stem: load_cases(file) for file in files}))


if __name__ == "__main__":
    main()
