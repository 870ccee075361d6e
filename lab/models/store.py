"""Write a model once, and find it again: `<cache>/models/<arch>-<content hash>.gguf`."""

import hashlib
import os
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

import gguf

from lab import paths
from lab.errors import LabError
from lab.models.base import Metadata, Weights, tokenizer
from lab.models.spec import Model, ModelSpec


def build(spec: ModelSpec) -> Model:
    """The model's file, written unless it is there and intact.

    Safe in several processes at once: the same spec gives the same bytes, and a file appears
    under its name only when it is complete.

    Raises:
        LabError: the cache cannot be written.
    """
    home = paths.cache() / "models"
    try:
        return _find(home, spec) or _make(home, spec)
    except OSError as error:
        raise LabError(
            f"cannot keep a model here: {error.strerror}",
            where=str(error.filename or home),
            hint="make room or give access, or set RPCLAB_CACHE to another directory",
        ) from None


def _find(home: Path, spec: ModelSpec) -> Model | None:
    note = _note(home, spec)
    known = note.read_text(errors="replace").strip() if note.is_file() else ""
    path = _path(home, spec, known)
    if known and path.is_file() and _sha256(path) == known:
        return Model(path, known, spec)
    return None


def _make(home: Path, spec: ModelSpec) -> Model:
    _directory(home / "index")
    path, sha256 = _write(home, spec)
    _publish(_note(home, spec), sha256.encode())
    return Model(path, sha256, spec)


def _note(home: Path, spec: ModelSpec) -> Path:
    """A file's name tells its content; which content a spec gave is noted here."""
    key = hashlib.sha256(f"{_generator()}\n{spec.canonical()}".encode()).hexdigest()
    return home / "index" / key


def _write(home: Path, spec: ModelSpec) -> tuple[Path, str]:
    with tempfile.TemporaryDirectory(dir=home, prefix=".tmp-") as scratch:
        draft = Path(scratch) / "model.gguf"
        _gguf(draft, spec)
        sha256 = _sha256(draft)
        path = _path(home, spec, sha256)
        draft.chmod(0o644)
        draft.replace(path)
    return path, sha256


def _gguf(path: Path, spec: ModelSpec) -> None:
    weights = Weights(spec.seed)
    spec.params.tensors(weights)
    writer = gguf.GGUFWriter(path, spec.arch)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(f"rpclab {spec.arch}")
    writer.add_description(f"{spec}, seed {spec.seed}, random weights")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add(writer, {f"{spec.arch}.{key}": value for key, value in spec.params.metadata().items()})
    _add(writer, tokenizer())
    for name, values in weights.all.items():
        writer.add_tensor(name, values, raw_dtype=weights.types.get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: gguf.GGUFWriter, metadata: Metadata) -> None:
    kind = gguf.GGUFValueType
    # `bool` first: it is an `int` too.
    types = {bool: kind.BOOL, int: kind.UINT32, float: kind.FLOAT32, str: kind.STRING}
    for key, value in metadata.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, types[type(value)])


def _path(home: Path, spec: ModelSpec, sha256: str) -> Path:
    return home / f"{spec.arch}-{sha256[:12]}.gguf"


@cache
def _generator() -> str:
    """A hash of what writes the files: a change in this package makes new ones."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(version("gguf").encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _publish(path: Path, content: bytes) -> None:
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(draft).chmod(0o644)
    Path(draft).replace(path)


def _directory(path: Path) -> None:
    """Make `path`, readable by the nodes' unprivileged user whatever the umask says."""
    missing = [part for part in (path, *path.parents) if not part.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for part in missing:
        part.chmod(0o755)
