"""Resources of the process: its threads and their priority, its memory, and how many files it may open."""

import contextlib
import ctypes
import gc
import os
import sys
import threading

import faiss
from threadpoolctl import threadpool_limits

# A ninth of the share of a thread that is not niced (sched(7)), so that a request is refused within milliseconds while
# every processor encodes (docs/benchmarks/serving.md, "Overload").
_NICENESS = 10
_RESERVED_FILES = 256  # the release, logs, Redis, the listening socket, and what a library opens for a moment


def limit_blas_threads() -> None:
    """Have NumPy multiply on the thread that asks for it, in this process: the products of a reply are too small."""
    threadpool_limits(1, user_api="blas")


def set_search_threads(threads: int) -> None:
    """Set how many threads FAISS uses for the searches of the calling thread.

    Args:
        threads: As OpenMP counts them, which includes the calling one.
    """
    faiss.omp_set_num_threads(threads)


def lower_priority() -> None:
    """Have the calling thread wait for those of this process that are not niced, such as its event loop.

    Only Linux has a niceness for each thread; elsewhere nothing happens.
    """
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def freeze_objects() -> None:
    """Exempt what is loaded from garbage collection, which would traverse all of it again and again.

    Under load these traversals are what delays the slowest refusals (docs/benchmarks/serving.md, "Overload").
    """
    gc.collect()
    gc.freeze()


def release_memory() -> None:
    """Free what nobody refers to any more, frozen objects included, and return it to the system.

    glibc keeps freed memory for later, that of an encoder's weights included: without this, a process that swaps
    releases stays as large as the largest two that it ever had at once.
    """
    gc.unfreeze()
    freeze_objects()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not in every libc
        if trim is not None:
            trim(0)


def raise_file_limit() -> None:
    """Let the process open as many files as the system allows: the soft limit is often 1,024, for select()'s sake."""
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS says "unlimited" and takes less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_that_fit(wanted: int) -> int:
    """Return how many connections the process may have, given how many files it may open.

    Args:
        wanted: The number to return where so many fit.
    """
    if sys.platform == "win32":
        return wanted
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - _RESERVED_FILES))
