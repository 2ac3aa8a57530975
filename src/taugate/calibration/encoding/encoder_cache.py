"""The cache of encoders on this machine, in folders that appear complete or not at all."""

from collections.abc import Callable
from pathlib import Path

from taugate.errors import InputError
from taugate.storage.folders import publish_folder, staging_folder


def write_cached(cached: Path, fill: Callable[[Path], None]) -> None:
    """Fill the folder `cached` of an encoder, which appears complete or not at all.

    Raises:
        InputError: If it cannot be written.
    """
    try:
        with staging_folder(cached.parent, ".export-") as staging:
            fill(staging)
            publish_folder(staging, cached)
    except OSError as error:
        raise InputError(
            f"{cached.parent}: cannot store the exported encoder ({error}); set TAUGATE_CACHE to another folder"
        ) from error
