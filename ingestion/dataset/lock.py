"""One writer at a time in the folder of a data set."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taugate.errors import InputError
from taugate.storage.locks import exclusive_lock

LOCK = ".import.lock"


class DatasetBusy(InputError):
    """Another command is writing to the data set."""


@contextmanager
def sole_writer(data: Path) -> Iterator[None]:
    """Keep other commands from writing to a data set.

    data: its folder, which exists. Raises DatasetBusy where another command is writing to it.
    """
    with exclusive_lock(data / LOCK, seconds=0) as holder:
        if holder is not None:
            raise DatasetBusy(f"{data}: another command ({holder}) is writing to it; wait until it ends")
        yield
