"""Files of a releases directory that are changed in place: whoever may change the directory may change them."""

import os
from pathlib import Path

from retrieval.errors import ReleaseError


def open_shared(path: Path, flags: int) -> int:
    """A descriptor; the file is made where needed, with the directory's own read and write bits, whatever the umask.

    Raises ReleaseError where the directory cannot be written to.
    """
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ReleaseError(
            f"{path.parent}: cannot be changed from here ({error.strerror}: {path.name}); run this where it can be "
            "written to"
        ) from error
    if os.fstat(descriptor).st_uid == os.geteuid():
        os.fchmod(descriptor, path.parent.stat().st_mode & 0o666)
    return descriptor
