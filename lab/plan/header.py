"""The header of a GGUF file, or of all parts of a split one. No tensor data is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGUFReader

from lab.errors import InputError

MAGIC = b"GGUF"
PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True)
class Header:
    """What placement needs: `keys` (the metadata), `tensors` (name -> bytes)."""

    keys: dict[str, Any]
    tensors: dict[str, int]

    @property
    def arch(self) -> str:
        """llama.cpp's name of the architecture."""
        return str(self.keys["general.architecture"])

    @property
    def layers(self) -> int:
        """How many blocks there are, without the output layer."""
        return int(self.key("block_count"))

    def key(self, name: str, default: Any = None) -> Any:
        """A key of the architecture's own.

        Raises:
            InputError: it is missing and there is no default.
        """
        full = f"{self.arch}.{name}"
        if full not in self.keys and default is None:
            raise InputError(f"the model has no key {full}", where="model")
        return self.keys.get(full, default)

    def at(self, name: str, layer: int, default: Any = None) -> Any:
        """A key that is one value for all layers or one for each."""
        value = self.key(name, default)
        return value[layer] if isinstance(value, list) else value


def read(path: Path) -> Header:
    """The header of `path`, with all its parts where it is the part of a split.

    Raises:
        InputError: not a GGUF file, truncated, or a part is missing.
    """
    parts = _parts(path)
    keys: dict[str, Any] = {}
    tensors: dict[str, int] = {}
    for part in parts:
        reader = _open(part)
        keys |= {k: f.contents() for k, f in reader.fields.items() if k not in keys}
        tensors |= {t.name: int(t.n_bytes) for t in reader.tensors}
    if "general.architecture" not in keys:
        raise InputError("no key general.architecture", where=str(path))
    return Header(keys, tensors)


def _parts(path: Path) -> list[Path]:
    found = PART.search(path.name)
    if not found:
        return [path]
    total = int(found[2])
    stem = path.name[: found.start()]
    parts = [path.with_name(f"{stem}-{n:05}-of-{total:05}.gguf") for n in range(1, total + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise InputError(
            f"a part of the split is missing: {', '.join(missing)}",
            where=str(path),
            hint="put all parts into one directory",
        )
    return parts


def _open(path: Path) -> GGUFReader:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if not magic:
        raise InputError("the file is empty (0 bytes)", where=str(path))
    if magic != MAGIC:
        raise InputError("no GGUF file (it does not begin with GGUF)", where=str(path))
    try:
        return GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError) as error:
        raise InputError(
            "truncated or damaged: header or tensors reach beyond the file's end",
            where=str(path),
            hint="fetch it again, and compare its size",
        ) from error
