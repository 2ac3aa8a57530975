"""Splits in parallel: two processes, each with one thread, that load a searched data set once."""

import pickle
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from threadpoolctl import threadpool_limits

from benchmarks.searched import SearchedSplit

Result = TypeVar("Result")
_PROCESSES = 2


class Workers:
    """A pool of two processes with one thread each; a data set travels to them as a file."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        self._pool = ProcessPoolExecutor(_PROCESSES, mp_context=get_context("spawn"), initializer=_begin)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._folder.cleanup()

    def each(self, searched: SearchedSplit, work: Callable[[SearchedSplit, int], Result], count: int) -> list[Result]:
        """`work(searched, number)` for the numbers 0…count-1, in order."""
        path = Path(self._folder.name) / f"{searched.name}-{searched.k}-{id(searched)}.pickle"
        path.write_bytes(pickle.dumps(searched))
        done = list(self._pool.map(partial(_call, path, work), range(count), chunksize=5))
        path.unlink()
        return done


def _begin() -> None:
    threadpool_limits(limits=1)


def _call(path: Path, work: Callable[[SearchedSplit, int], Result], number: int) -> Result:
    return work(_load(path), number)


@lru_cache(maxsize=1)
def _load(path: Path) -> SearchedSplit:
    loaded: SearchedSplit = pickle.loads(path.read_bytes())  # noqa: S301 (this program wrote it a moment ago)
    return loaded
