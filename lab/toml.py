"""Read a TOML file into a strict pydantic model, with errors a user can act on."""

import difflib
import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, RootModel, ValidationError

from lab.errors import InputError


class Strict(BaseModel):
    """Base of every file format of the lab: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


T = TypeVar("T", bound=BaseModel)


def load(path: Path, model: type[T]) -> T:
    """The file as `model`.

    Raises:
        InputError: file, line or field path, what is wrong, what is allowed.
    """
    return validate(read(path), model, str(path))


def read(path: Path) -> dict[str, Any]:
    """The file as plain data. Raises `InputError` where it is missing or no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.glob(f"*{path.suffix}"))
        raise InputError(
            "no such file", where=str(path), hint=f"there are: {', '.join(near) or 'none'}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not valid TOML: {error}", where=str(path)) from None


def validate(data: Any, model: type[T], where: str) -> T:
    """`data` as `model`; the error names `where`, the field path and what is allowed."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = [_explain(problem, model) for problem in error.errors()]
        raise InputError("\n  ".join(dict.fromkeys(lines)), where=where) from None


def unknown(kind: str, name: str, allowed: list[str]) -> str:
    """One line for a name that does not exist: the nearest first, then all that do."""
    near = difflib.get_close_matches(name, allowed, n=1)
    guess = f" (did you mean {near[0]!r}?)" if near else ""
    return f"unknown {kind} {name!r}{guess}; allowed: {', '.join(allowed) or 'none'}"


def _explain(problem: Any, model: type[BaseModel]) -> str:
    loc = [str(part) for part in _without_tags(model, problem["loc"])]
    field = ".".join(loc) or "(the whole file)"
    if problem["type"] == "extra_forbidden":
        fields = _fields_at(model, problem["loc"][:-1])
        return f"{field}: {unknown('key', loc[-1], sorted(fields))}"
    if problem["type"] == "union_tag_invalid":
        tag = problem["ctx"]
        allowed = [name.strip("' ") for name in tag["expected_tags"].split(",")]
        return (
            f"{field}.{tag['discriminator'].strip(chr(39))}: {unknown('kind', tag['tag'], allowed)}"
        )
    if problem["type"] == "union_tag_not_found":
        return f"{field}.{problem['ctx']['discriminator'].strip(chr(39))}: required, but missing"
    if problem["type"] == "missing":
        return f"{field}: required, but missing"
    if problem["type"] == "value_error":
        return f"{field}: {problem['ctx']['error']}"
    value = repr(problem["input"])
    shown = value if len(value) <= 60 else value[:57] + "..."
    return f"{field}: {problem['msg'][:1].lower()}{problem['msg'][1:]}, not {shown}"


def _without_tags(model: type[BaseModel], loc: tuple[Any, ...]) -> list[Any]:
    """An error location as it stands in the file: without the name of a union's member."""
    kept: list[Any] = []
    for place, part in enumerate(loc):
        if not _tagged(_candidates(model, loc[:place]), part):
            kept.append(part)
    return kept


def _fields_at(model: type[BaseModel], loc: tuple[Any, ...]) -> set[str]:
    """The field names of the (nested) model that an error location points into."""
    return {
        (info.alias or name)
        for candidate in _candidates(model, loc)
        for name, info in candidate.model_fields.items()
    }


def _tagged(candidates: list[Any], part: Any) -> list[Any]:
    """Those of a union's members that say `kind: Literal[part]`; a key may be called so too."""
    if len(candidates) < 2:
        return []
    kinds = [(c, c.model_fields.get("kind")) for c in candidates]
    return [c for c, info in kinds if info and part in getattr(info.annotation, "__args__", ())]


def _candidates(model: type[BaseModel], loc: tuple[Any, ...]) -> list[Any]:
    """The models that an error location may point into."""
    candidates: list[Any] = _models_in(model)
    for part in loc:
        if tagged := _tagged(candidates, part):
            candidates = tagged
            continue
        nested: list[Any] = []
        for candidate in candidates:
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                info = candidate.model_fields.get(str(part))
                nested += _models_in(info.annotation) if info else []
        # An index or a mapping key stays at the same model.
        candidates = nested or candidates
    return candidates


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, RootModel):
        return _models_in(annotation.model_fields["root"].annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for arg in getattr(annotation, "__args__", ()) for m in _models_in(arg)]
