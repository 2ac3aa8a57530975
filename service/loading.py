"""Which release is loaded, and how: as the settings say where it is and whom to trust."""

from collections.abc import Callable
from pathlib import Path

from retrieval.release.encoders import AskedPrecision
from retrieval.release.reader import Release, load
from retrieval.release.trusted_keys import TrustedKeys
from service.settings import Settings

# Opens a release folder, with a number of encoder threads and an encoder of a precision.
Load = Callable[[Path, int, AskedPrecision], Release]


def trusting(settings: Settings) -> Load:
    """`load`, but for releases that nobody trusted has signed. The keys are read each time: they may have changed."""

    def load_trusted(folder: Path, threads: int, precision: AskedPrecision) -> Release:
        return load(folder, threads, precision, trusted_keys(settings))

    return load_trusted


def trusted_keys(settings: Settings) -> TrustedKeys | None:
    """Raises InputError where the setting names none."""
    return None if settings.trusted_keys is None else TrustedKeys.load(settings.trusted_keys)
