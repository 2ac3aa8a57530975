"""Where things are kept that can be made or fetched again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """TAUGATE_CACHE, else taugate in the user's cache directory (XDG Base Directory specification)."""
    if chosen := os.environ.get("TAUGATE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "taugate"
