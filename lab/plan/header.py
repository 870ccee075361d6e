"""The header of a GGUF file, or of all parts of a split one. No tensor data is read."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gguf import GGUFEndian, GGUFReader, GGUFValueType

from lab.errors import InputError

MAGIC = b"GGUF"
PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
LONG = 4096
"""Numbers in an array that is passed over: longer ones belong to a vocabulary, not to layers."""


@dataclass(frozen=True)
class Span:
    """Where a tensor's data lies: part of the split (from 0), first byte, end."""

    part: int
    start: int
    end: int


@dataclass(frozen=True)
class Header:
    """What placement needs: `keys` (the metadata), `tensors` (name -> bytes)."""

    keys: dict[str, Any]
    tensors: dict[str, int]
    spans: dict[str, Span] = field(default_factory=dict)

    @property
    def arch(self) -> str:
        """llama.cpp's name of the architecture."""
        return str(self.keys["general.architecture"])

    @property
    def layers(self) -> int:
        """How many blocks there are, without the output layer."""
        return int(self.key("block_count"))

    @property
    def trunk(self) -> int:
        """Blocks without those that predict further tokens, which come last and have no cache."""
        return self.layers - int(self.key("nextn_predict_layers", 0))

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


class _Reader(GGUFReader):
    """Passes over a vocabulary, which places nothing and takes the reader seconds."""

    @property
    def _bytes(self) -> Any:
        return self.data

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        if raw_type == GGUFValueType.ARRAY:
            order = "<" if self.endianess == GGUFEndian.LITTLE else ">"
            kind, count = struct.unpack_from(f"{order}IQ", self._bytes, orig_offs)
            start = orig_offs + 12
            if kind == GGUFValueType.STRING:
                end = self._past_strings(start, count, struct.Struct(f"{order}Q"))
                return end - orig_offs, [], [], [GGUFValueType.ARRAY, GGUFValueType.STRING]
            if count > LONG and GGUFValueType(kind) in self.gguf_scalar_to_np:
                width = self.gguf_scalar_to_np[GGUFValueType(kind)]().itemsize
                return 12 + count * width, [], [], [GGUFValueType.ARRAY, GGUFValueType(kind)]
        return super()._get_field_parts(orig_offs, raw_type)

    def _past_strings(self, at: int, count: int, length: struct.Struct) -> int:
        for _ in range(count):
            at += 8 + length.unpack_from(self._bytes, at)[0]
        return at


def read(path: Path) -> Header:
    """The header of `path`, with all its parts where it is the part of a split.

    Raises:
        InputError: not a GGUF file, truncated, or a part is missing.
    """
    keys: dict[str, Any] = {}
    tensors: dict[str, int] = {}
    spans: dict[str, Span] = {}
    for number, part in enumerate(_parts(path)):
        reader = _open(part)
        keys |= {
            key: value.contents()
            for key, value in reader.fields.items()
            if key not in keys and not key.startswith("tokenizer.")
        }
        for tensor in reader.tensors:
            size, start = int(tensor.n_bytes), int(tensor.data_offset)
            tensors[tensor.name] = size
            spans[tensor.name] = Span(number, start, start + size)
    _whole(path, keys, tensors)
    return Header(keys, tensors, spans)


def _whole(path: Path, keys: dict[str, Any], tensors: dict[str, int]) -> None:
    if "general.architecture" not in keys:
        raise InputError(
            "no key general.architecture", where=str(path), hint="give the model, no vocabulary"
        )
    arch = keys["general.architecture"]
    if f"{arch}.block_count" not in keys:
        raise InputError(
            f"no key {arch}.block_count: no language model", where=str(path), hint="give the model"
        )
    told = int(keys.get("split.tensors.count", len(tensors)))
    if told != len(tensors):
        raise InputError(
            f"{len(tensors)} tensors in its parts, and the header tells of {told}",
            where=str(path),
            hint="name the parts as they were (NAME-00001-of-00002.gguf), all in one directory",
        )


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
        raise InputError(
            f"cannot be read: {error.strerror}", where=str(path), hint="give a GGUF file"
        ) from error
    if not magic:
        raise InputError(
            "the file is empty (0 bytes)", where=str(path), hint="fetch it again"
        ) from None
    if magic != MAGIC:
        raise InputError(
            "no GGUF file (it does not begin with GGUF)", where=str(path), hint="give a GGUF file"
        )
    try:
        return _Reader(path)
    except (ValueError, IndexError, KeyError, OverflowError, struct.error) as error:
        if "GGMLQuantizationType" in str(error):
            raise InputError(
                f"a tensor type that the installed gguf package does not know ({error})",
                where=str(path),
                hint="take a newer gguf package (pip install -U gguf)",
            ) from error
        raise InputError(
            "truncated or damaged: header or tensors reach beyond the file's end",
            where=str(path),
            hint="fetch it again, and compare its size",
        ) from error
