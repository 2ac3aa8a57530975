"""The folder of an unfinished adaptation, beside the encoder to be: for one process at a time, kept after a kill."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from taugate.errors import InputError, TaugateError
from taugate.storage.files import disk_failure
from taugate.storage.locks import exclusive_lock

_LOCK = "lock"


@contextmanager
def sole_worker(work: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Make the folder, keep other processes from it, and remove it in the end.

    After an error or Ctrl-C it stays if anything has been trained, or if it was there before.

    Args:
        work: The folder.
        say: Told where the work is kept.

    Raises:
        InputError: Where another process has it, or it cannot be made.
    """
    was_there = work.exists()
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{work}: the unfinished work cannot be written there ({error.strerror or error}); name another folder "
            "with --to"
        ) from error
    with ExitStack() as stack:
        holder = None
        with suppress(OSError):  # a file system without locks
            holder = stack.enter_context(exclusive_lock(work / _LOCK, 0))
        if holder is not None:
            raise InputError(
                f"{work}: {holder} is adapting there; wait until it ends, or name another folder with --to"
            )
        try:
            yield
        except BaseException as error:
            if not was_there and not any(each.is_file() for each in work.glob("*/**/*")):
                shutil.rmtree(work, ignore_errors=True)
            elif not isinstance(error, TaugateError):  # whose message says what to do
                say(f"the unfinished work is kept in {work}: the same command goes on with it")
            raise
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Raise InputError where files of the unfinished work cannot be written.

    Args:
        folder: That is written to inside the `with` block.
    """
    try:
        yield
    except Exception as error:
        said = disk_failure(error)
        if said is None:
            raise
        raise InputError(
            f"{folder}: the unfinished work cannot be written there ({said}); free some space and repeat the command, "
            "which goes on from what is there"
        ) from error
