"""The folder in which workers keep what they measure: one for each service, gone with it, and room for it taken first.

prometheus_client maps its files into memory as they are, with holes. A hole that the disk has no room for when it is
written to ends the process with SIGBUS, at the next request that counts anything.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taugate.errors import InputError
from taugate.storage.staging import staging_folder

_PREFIX = "taugate-workers-"
# One for each type of metric and way of combining gauges (service/metrics.py), as prometheus_client names them.
_KINDS = ("counter", "histogram", "gauge_livesum", "gauge_livemin", "gauge_livemax", "gauge_livemostrecent")
# Four times what prometheus_client begins with. The longest, of counters, has 150 bytes for each series: some 200 API
# keys take 30 kB beside the 15 kB of all else.
_BYTES = 256 << 10


@contextmanager
def worker_folder() -> Iterator[Path]:
    """A folder for the workers of this service; what services left that were killed is cleared away."""
    with staging_folder(Path(tempfile.gettempdir()), _PREFIX) as folder:
        yield folder


def reserve(folder: Path) -> None:
    """Make the files of this process before anything is measured. Raises InputError where there is no room for them."""
    try:
        for kind in _KINDS:
            descriptor = os.open(folder / f"{kind}_{os.getpid()}.db", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, _BYTES)
            finally:
                os.close(descriptor)
    except OSError as error:
        for path in folder.glob(f"*_{os.getpid()}.db"):  # nothing was measured in them, and others need the room
            path.unlink()
        raise InputError(
            f"{folder}: no room for what a worker measures ({error.strerror}); make some, or name another folder with "
            "TMPDIR"
        ) from error
