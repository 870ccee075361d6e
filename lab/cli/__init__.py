"""The console script `rpclab`: one file per verb, listed here in the order of `--help`."""

import contextlib
import sys
from importlib import import_module

import typer

from lab import __version__, engine, sweep, terminal
from lab.errors import Exit, LabError, NoEngineError

VERBS = (
    "doctor",
    "images",
    "models",
    "list",
    "plan",
    "run",
    "nightly",
    "bisect",
    "workarounds",
    "bill",
    "judge",
    "diff",
    "clean",
)
"""Each is a module of this package whose function `command` is the verb."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run llama.cpp's RPC mode for real, break it on purpose, say in one word what happened.",
    epilog="Exit codes: 0 all passed, 1 a case failed, 2 wrong input, 3 no container engine, "
    "4 the lab itself failed, 130 interrupted.",
)


@app.callback(invoke_without_command=True)
def _before(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version."),
) -> None:
    if version:
        print(__version__)
        raise typer.Exit
    # `clean` sweeps by itself, and counts.
    if {"-h", "--help"} & set(sys.argv) or context.invoked_subcommand == "clean":
        return
    # Whatever the verb: what a lab left that died together with its guard goes now.
    with contextlib.suppress(NoEngineError):
        sweep.sweep_stale(engine.client(timeout=10))


def main() -> None:
    """Run the verb; every failure of the lab ends in its own exit code and no traceback."""
    # Only the verb that is called for, where one is: the others' libraries take time to load.
    for verb in [verb for verb in VERBS if verb in sys.argv[1:2]] or VERBS:
        app.command(name=verb)(import_module(f"lab.cli.{verb}").command)
    try:
        app(standalone_mode=True)
    except LabError as error:
        terminal.err().print(
            f"rpclab: {error}", style="red", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
