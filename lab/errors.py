"""What the lab says when it cannot go on: what is wrong, where, and what to do next."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every `rpclab` verb, for scripts."""

    OK = 0
    """Everything asked for was done; every verdict is `pass` or `skip`."""
    FAIL = 1
    """At least one case has the verdict `fail`."""
    INPUT = 2
    """A wrong command line, scenario, pin or variant file."""
    NO_ENGINE = 3
    """No container engine answers."""
    ERROR = 4
    """The lab itself failed; nothing is said about llama.cpp."""
    INTERRUPTED = 130
    """Ctrl-C."""


class LabError(Exception):
    """The lab cannot go on. Never a statement about llama.cpp.

    Args:
        what: what is wrong, in one line.
        where: the file and field path, the container or the command concerned.
        hint: what to do next.
    """

    exit_code = Exit.ERROR

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what, self.where, self.hint = what, where, hint
        super().__init__(what)

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\n  next: {self.hint}" if self.hint else head


class InputError(LabError):
    """A file or an argument of the user's is wrong; nothing was started."""

    exit_code = Exit.INPUT


class NoEngineError(LabError):
    """No container engine answers."""

    exit_code = Exit.NO_ENGINE
