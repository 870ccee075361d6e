"""The nightly matrix: every scenario over every pin and flavour, and what changed since.

cases -> plan (which, in which order, what each needs) -> run (pytest-xdist within a budget)
    -> result (from the evidence alone) -> compare (with earlier nights) -> summary, exit code
"""
