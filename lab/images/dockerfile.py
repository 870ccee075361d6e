"""Run one `docker build`: its log is kept, its end is ours."""

from __future__ import annotations

import collections
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from lab.engine import build_environment, buildkit_cli
from lab.errors import LabError
from lab.progress import Progress, Update

LAST_LINES = 15


def docker_build(
    dockerfile: Path,
    context: Path,
    *,
    tag: str,
    labels: Mapping[str, str],
    log: Path,
    title: str,
    progress: Progress,
    args: Mapping[str, str] | None = None,
) -> list[str]:
    """Build `context` with `dockerfile` and tag the image.

    Returns:
        The steps that the engine did not run, since it had their outcome already.

    Raises:
        LabError: the build failed; carries the last lines and the path of the whole log.
    """
    command = [str(buildkit_cli()), "build", "--progress=plain", "-f", str(dockerfile), "-t", tag]
    command += [part for k, v in (args or {}).items() for part in ("--build-arg", f"{k}={v}")]
    command += [part for k, v in labels.items() for part in ("--label", f"{k}={v}")]
    command += [str(context)]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file, progress.step(title) as update:
        last = collections.deque[str](maxlen=LAST_LINES)
        code = _run(command, file.write, last, update)
    if code != 0:
        raise LabError(
            "the build failed; its last lines:\n  " + "\n  ".join(last),
            where=tag,
            hint=f"the whole log is {log}",
        )
    return _cached_steps(log.read_text(encoding="utf-8"))


def _cached_steps(log: str) -> list[str]:
    """`#7 [build 2/3] RUN ...` names a step, and `#7 CACHED` says that it was not run."""
    names = dict(re.findall(r"^(#\d+) (\[.*)$", log, re.MULTILINE))
    cached = re.findall(r"^(#\d+) CACHED$", log, re.MULTILINE)
    return [names[step] for step in cached if step in names]


def _run(
    command: list[str],
    write: collections.abc.Callable[[str], object],
    last: collections.deque[str],
    update: Update,
) -> int:
    write(f"$ {' '.join(command)}\n")
    with subprocess.Popen(
        command,
        env=build_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                write(line)
                if text := line.strip():
                    last.append(text)
                    update(_shown(text))
            return process.wait()
        finally:
            # Ctrl-C, or any other way out: the engine stops the build when its client goes.
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    process.kill()


def _shown(line: str) -> str:
    """`[12/206] Building CXX ...` where it is one, without the step number and the seconds."""
    text = re.sub(r"^#\d+ (\d+\.\d+ )?", "", line)
    return text[: max(20, int(os.environ.get("COLUMNS", "100")) - 40)]
