"""The folder of an unfinished adaptation beside its target: locked by one process, kept after a kill."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from taugate.calibration.progress import Job
from taugate.errors import InputError, TaugateError
from taugate.storage.files import disk_failure
from taugate.storage.locks import exclusive_lock

_LOCK = "lock"


@contextmanager
def sole_worker(work: Path, job: Job) -> Iterator[None]:
    """Create the folder, lock it, and remove it at the end.

    After an error or Ctrl-C it is kept if anything has been trained, or if it existed before.

    Args:
        work: The folder.
        job: Reports the folder in which the work is kept.

    Raises:
        InputError: If another process holds the folder, or it cannot be created.
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
            if not was_there and not any(path.is_file() for path in work.glob("*/**/*")):
                shutil.rmtree(work, ignore_errors=True)
            elif not isinstance(error, TaugateError):  # a TaugateError says what to do
                job.report(f"the unfinished work is kept in {work}; run the same command to resume")
            raise
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Raise InputError if files of the unfinished work cannot be written to the folder in the `with` block."""
    try:
        yield
    except Exception as error:
        reason = disk_failure(error)
        if reason is None:
            raise
        raise InputError(
            f"{folder}: the unfinished work cannot be written there ({reason}); free some space and repeat the "
            "command, which resumes the work"
        ) from error
