"""A figure read again and again by a thread while something else runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Figure = TypeVar("Figure")


@contextmanager
def sampled(read: Callable[[], Figure], seconds: float) -> Iterator[list[Figure]]:
    """Yield a list that grows during the block: one figure from before it, then one every so many seconds."""
    figures, ended = [read()], threading.Event()

    def keep_reading() -> None:
        while not ended.wait(seconds):
            figures.append(read())

    thread = threading.Thread(target=keep_reading)
    thread.start()
    try:
        yield figures
    finally:
        ended.set()
        thread.join()
