"""A lock that admits one writer at a time to the folder of a data set."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taugate.errors import InputError
from taugate.storage.locks import exclusive_lock

LOCK = ".import.lock"


class DatasetBusy(InputError):
    """Another command is writing to the data set."""


@contextmanager
def sole_writer(data: Path, seconds: float = 0) -> Iterator[None]:
    """Keep other commands from writing to a data set.

    Args:
        data: An existing folder.
        seconds: Maximum time to wait for another command that is writing to it.

    Raises:
        DatasetBusy: If the other command has not ended by then.
    """
    with exclusive_lock(data / LOCK, seconds) as holder:
        if holder is not None:
            raise DatasetBusy(f"{data}: another command ({holder}) is writing to it; wait until it ends")
        yield
