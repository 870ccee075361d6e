"""Variants: edits that must match exactly as often as they say."""

import os
from pathlib import Path

import pytest

from lab.errors import InputError
from lab.variants import (
    copy_with,
    digest,
    load_variant,
    variant_file,
    variant_names,
)

GOOD = """
about = "offload is false"

[[edits]]
file = "src/kv.cpp"
pattern = 'model, offload, (\\w+)'
replacement = 'model, false, \\1'
count = 2
"""

SOURCE = "a(model, offload, one);\nb(model, offload, two);\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree" / "src").mkdir(parents=True)
    (tmp_path / "tree" / "src" / "kv.cpp").write_text(SOURCE)
    (tmp_path / "tree" / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "tree" / "run.sh").chmod(0o755)
    return tmp_path / "tree"


def test_the_projects_variants_load() -> None:
    assert "offload-false" in variant_names()
    for name in variant_names():
        load_variant(variant_file(name))


def test_an_edit_changes_the_copy_and_never_the_tree(tmp_path: Path, tree: Path) -> None:
    file = _file(tmp_path, GOOD)
    copy_with(load_variant(file), file, tree, tmp_path / "copy")
    edited = (tmp_path / "copy" / "src" / "kv.cpp").read_text()
    assert edited == "a(model, false, one);\nb(model, false, two);\n"
    assert (tree / "src" / "kv.cpp").read_text() == SOURCE
    assert os.access(tmp_path / "copy" / "run.sh", os.X_OK)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count = 2", "count = 3", r"edits\.0: count: .* is expected 3 times .* found 2 times"),
        ("count = 2", "count = 1", r"is expected 1 times in src/kv\.cpp, and was found 2 times"),
        ("model, offload", "model, onload", "and was found 0 times"),
        ("src/kv.cpp", "src/kw.cpp", r"edits\.0: file: src/kw\.cpp is not in the source tree"),
        ("false, \\1", "false, \\2", r"edits\.0: replacement: invalid group reference 2"),
    ],
)
def test_an_edit_that_does_not_fit_the_tree(
    tmp_path: Path, tree: Path, old: str, new: str, message: str
) -> None:
    assert old in GOOD
    file = _file(tmp_path, GOOD.replace(old, new))
    with pytest.raises(InputError, match=message) as caught:
        copy_with(load_variant(file), file, tree, tmp_path / "copy")
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count = 2", "", "edits.0.count: required, but missing"),
        ("count = 2", "count = 0", "edits.0.count: input should be greater than 0"),
        ("count = 2", 'count = "2"', "edits.0.count: input should be a valid integer"),
        ("count = 2", "count = 2\ntimes = 2", "edits.0.times: unknown key 'times'"),
        ("(\\w+)'", "(\\w+'", "edits.0.pattern: not a regular expression: missing"),
        ("src/kv.cpp", "../kv.cpp", "edits.0.file: must be a path inside the source tree"),
        ("src/kv.cpp", "/etc/passwd", "edits.0.file: must be a path inside the source tree"),
        ('about = "offload is false"', "", "about: required, but missing"),
        ("[[edits]]", "[[edit]]", r"edit: unknown key 'edit' \(did you mean 'edits'\?\)"),
        (GOOD[GOOD.index("[[") :], "edits = []", "edits: tuple should have at least 1 item"),
        ("[[edits]]", "[[edits]", "not valid TOML"),
    ],
)
def test_a_broken_variant_file_says_where_and_what(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in GOOD
    file = _file(tmp_path, GOOD.replace(old, new))
    with pytest.raises(InputError, match=message) as caught:
        load_variant(file)
    assert str(file) in str(caught.value)


def test_an_unknown_variant_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'offload-false'"):
        variant_file("offload-flase")


def test_the_digest_is_of_the_edits_alone(tmp_path: Path) -> None:
    plain = digest(load_variant(_file(tmp_path, GOOD)))
    assert digest(load_variant(_file(tmp_path, "# why\n" + GOOD))) == plain
    assert digest(load_variant(_file(tmp_path, GOOD.replace("false,", "true,")))) != plain


def _file(folder: Path, text: str) -> Path:
    path = folder / "v.toml"
    path.write_text(text)
    return path
