"""Where did an outcome change? A search over builds or commits, on the outcome's signature.

steps (what there is between the two ends) -> search (which to try next) -> probe (run it)
    -> marks (good, bad or neither) -> search ... -> the first build of the other sort
"""
