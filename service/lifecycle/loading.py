"""Which release is loaded, and how: as the settings say where it is and whom to trust."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from taugate.errors import ReleaseError, TaugateError
from taugate.registry.catalog import current_id, find
from taugate.registry.remote.private import PRIVATE, copied, entered
from taugate.registry.remote.remote import bring, current_of
from taugate.retrieval.release.encoders import AskedPrecision
from taugate.retrieval.release.layout import CURRENT
from taugate.retrieval.release.reader import Release, load
from taugate.retrieval.release.trusted_keys import TrustedKeys
from taugate.service.settings import Settings
from taugate.storage.object_store import Store

# Opens a release folder, with a number of encoder threads and an encoder of a precision.
Load = Callable[[Path, int, AskedPrecision], Release]
_log = logging.getLogger("taugate.loading")


def current_release(settings: Settings, *, at_start: bool = False) -> Path:
    """Folder of the current release; where releases are at a URL, the copy of it is brought up to date.

    at_start: also looks for damage in the copy, and makes do with it as it is where the store does not answer or holds
    what does not verify: another release than the newest is better than none. Raises ReleaseError or InputError.
    """
    directory = settings.directory
    if isinstance(settings.releases, str):
        try:
            bring(settings.releases, directory, trusted_keys(settings), mend=at_start)
        except ReleaseError as error:
            if not at_start or not (directory / CURRENT).is_file():
                raise
            _log.warning("the copy of the releases is used as it is", extra={"fields": {"reason": str(error)}})
    return find(directory)


def promoted_id(settings: Settings) -> str | None:
    """Id of the release that was promoted last, which may not have been copied yet. Raises as `current_release`."""
    if isinstance(settings.releases, str):
        return current_of(Store(settings.releases))
    return current_id(settings.directory)


def trusting(settings: Settings) -> Load:
    """`load`, but for releases that nobody trusted has signed. The keys are read each time: they may have changed.

    Where keys are trusted, a release is opened in a folder that only this user can write to.
    """

    def load_trusted(release: Path, threads: int, precision: AskedPrecision) -> Release:
        trusted = trusted_keys(settings)
        if trusted is None:
            return load(release, threads, precision)
        own = (
            entered(release)
            if isinstance(settings.releases, str)
            else copied(release, settings.copies / PRIVATE, trusted)
        )
        try:
            return replace(load(own.release, threads, precision, trusted), holds=(own,))
        except BaseException as error:
            own.close()
            if isinstance(error, TaugateError):  # which is to name the release, not the copy
                raise type(error)(str(error).replace(str(own.release), str(release))) from error
            raise

    return load_trusted


def trusted_keys(settings: Settings) -> TrustedKeys | None:
    """Raises InputError where the setting names none."""
    return None if settings.trusted_keys is None else TrustedKeys.load(settings.trusted_keys)
