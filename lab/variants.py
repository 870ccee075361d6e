"""Variants: small source edits, as data, made before the build."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field, field_validator

from lab import paths, toml
from lab.errors import InputError


class Edit(toml.Strict):
    """One regular-expression replacement in one file, and how often it must match."""

    file: Annotated[str, Field(min_length=1)]
    pattern: Annotated[str, Field(min_length=1)]
    replacement: str
    count: Annotated[int, Field(gt=0, strict=True)]

    @field_validator("file")
    @classmethod
    def _inside_the_tree(cls, value: str) -> str:
        path = PurePosixPath(value)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"must be a path inside the source tree, not {value!r}")
        return value

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value


class Variant(toml.Strict):
    """A named set of edits."""

    about: Annotated[str, Field(min_length=1)]
    edits: Annotated[tuple[Edit, ...], Field(min_length=1)]


def variant_file(name: str) -> Path:
    """The file of a variant. Raises `InputError` with the names that there are."""
    path = _folder() / f"{name}.toml"
    if not path.is_file():
        raise InputError(toml.unknown("variant", name, variant_names()), where=str(_folder()))
    return path


def variant_names() -> list[str]:
    """All variants, sorted."""
    return sorted(path.stem for path in _folder().glob("*.toml"))


def load_variant(path: Path) -> Variant:
    """The variant in this file. Raises `InputError`: file, field, what is wrong."""
    return toml.load(path, Variant)


def digest(variant: Variant) -> str:
    """Changes when the edits do, not when a comment does."""
    edits = "\n".join(edit.model_dump_json() for edit in variant.edits)
    return hashlib.sha256(edits.encode()).hexdigest()


def copy_with(variant: Variant, path: Path, tree: Path, target: Path) -> None:
    """Make `target` a copy of `tree` with the edits of the variant that came from `path`.

    The copy shares unedited files with `tree` (hard links), so it takes no time and no room.

    Raises:
        InputError: an edit's file is missing or its pattern matches another number of times;
            names the variant's file, the edit, what was expected and what was found.
    """
    shutil.copytree(tree, target, copy_function=_link, symlinks=True)
    for index, edit in enumerate(variant.edits):
        where = f"{path}: edits.{index}"
        file = target / edit.file
        if not file.is_file():
            raise InputError(f"file: {edit.file} is not in the source tree {tree}", where=where)
        text = file.read_text(encoding="utf-8")
        try:
            text, found = re.subn(edit.pattern, edit.replacement, text, flags=re.MULTILINE)
        except (re.error, IndexError) as error:
            raise InputError(f"replacement: {error}", where=where) from None
        if found != edit.count:
            raise InputError(
                f"count: {edit.pattern!r} is expected {edit.count} times in {edit.file}, "
                f"and was found {found} times in {tree}",
                where=where,
                hint="the source differs between builds: check the edit against this one",
            )
        # The original, in the cache, is the same file: it must not be written to.
        mode = file.stat().st_mode
        file.unlink()
        file.write_text(text, encoding="utf-8")
        file.chmod(mode)


def _folder() -> Path:
    return paths.IMAGES / "variants"


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # Another file system, or one without links.
        shutil.copy2(source, target)
