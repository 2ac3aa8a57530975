"""A lock that admits one writer at a time to the folder of a data set."""

from contextlib import AbstractContextManager
from pathlib import Path

from taugate.errors import InputError
from taugate.storage.locks import exclusive_lock

LOCK = ".import.lock"


class DatasetBusy(InputError):
    """Another command is writing to the data set."""


def sole_writer(data: Path, seconds: float = 0) -> AbstractContextManager[None]:
    """Keep other commands from writing to a data set.

    Args:
        data: An existing folder.
        seconds: Maximum time to wait for another command that is writing to it.

    Raises:
        DatasetBusy: If the other command has not ended by then.
    """

    def busy(holder: str) -> DatasetBusy:
        return DatasetBusy(f"{data}: another command ({holder}) is writing to it; wait until it ends")

    return exclusive_lock(data / LOCK, seconds, busy)
