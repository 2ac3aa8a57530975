"""Files of a releases directory that are changed in place: whoever may change the directory may change them."""

import os
from contextlib import suppress
from pathlib import Path

from taugate.errors import ReleaseError


def open_shared(path: Path, flags: int) -> int:
    """A descriptor; a file that is not there is made, with the directory's own read and write bits, whatever the umask.

    Raises ReleaseError where the directory cannot be written to.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        descriptor = os.open(path, flags | os.O_CREAT, 0o600)
    except OSError as error:
        raise ReleaseError(
            f"{path.parent}: cannot be changed from here ({error.strerror}: {path.name}); run this where it can be "
            "written to"
        ) from error
    if os.fstat(descriptor).st_uid == os.geteuid():
        os.fchmod(descriptor, path.parent.stat().st_mode & 0o666)
    return descriptor
