"""One writer at a time in the folder of a data set."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taugate.errors import InputError
from taugate.storage.locks import exclusive_lock

LOCK = ".import.lock"


@contextmanager
def sole_writer(data: Path) -> Iterator[None]:
    """Keep other commands from writing to a data set.

    data: its folder, which exists. Raises InputError where another command is writing to it.
    """
    with exclusive_lock(data / LOCK, seconds=0) as holder:
        if holder is not None:
            raise InputError(f"{data}: another command ({holder}) is writing to it; wait until it ends")
        yield
