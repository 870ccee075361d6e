"""Where things are: the project's data, the cache, the evidence."""

import os
from pathlib import Path

import platformdirs

PROJECT = Path(__file__).resolve().parent.parent
"""The checkout: `images/` and `scenarios/` are data beside the package."""

IMAGES = PROJECT / "images"
SCENARIOS = PROJECT / "scenarios"


def cache() -> Path:
    """Sources, models and reference answers; safe to delete. `RPCLAB_CACHE` moves it."""
    return Path(os.environ.get("RPCLAB_CACHE") or platformdirs.user_cache_path("rpclab"))


def runs() -> Path:
    """Evidence directories, one per run, never overwritten. `RPCLAB_RUNS` moves it."""
    return Path(os.environ.get("RPCLAB_RUNS") or PROJECT / "runs")
