"""The door: `rpclab`, and `python -m lab`."""

import sys


def main() -> None:
    """Ctrl-C is clean from the first moment: loading the libraries takes a second."""
    try:
        from lab.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
