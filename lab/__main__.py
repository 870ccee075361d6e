"""`python -m lab` is `rpclab`."""

from lab.cli import main

main()
