"""The releases directory has to exist; checked without loading anything that reads releases."""

from pathlib import Path

from taugate.errors import ReleaseError


def check_releases_exist(releases: Path) -> None:
    """Raise ReleaseError if there is no such directory."""
    if not releases.is_dir():
        raise ReleaseError(f"{releases}: no such directory; `taugate calibrate DATA --releases {releases}` creates it")
