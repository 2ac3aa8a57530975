"""How many files a process may open, of which connections are most."""

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


def one_for_blas() -> None:
    """NumPy's products on the thread that asks for them: those of a reply are too small to share, for this process."""
    threadpool_limits(1, user_api="blas")


def for_search(threads: int) -> None:
    """FAISS's threads for the searches of the calling thread, as OpenMP counts them."""
    faiss.omp_set_num_threads(threads)


def give_way() -> None:
    """Have the threads of this process that are not niced, its event loop, go before the calling one on a processor.

    Linux has a niceness for each thread; elsewhere nothing happens.
    """
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def settle() -> None:
    """Take what was loaded out of the garbage collector's sight, which would look at all of it again and again.

    Under load such looks are what holds up the slowest refusals (docs/benchmarks/serving.md, "Overload").
    """
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Free what nobody refers to any more, cycles that were settled included, and hand it to the system.

    glibc keeps what is freed for later, an encoder's weights among it: without this a process that swaps releases is as
    large as the largest two it ever had at once.
    """
    gc.unfreeze()
    settle()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not in every libc
        if trim is not None:
            trim(0)


_OTHERS = 256  # the release, logs, Redis, the listening socket, and what a library opens for a moment


def raise_limit() -> None:
    """Allow as many as the system lets this process have: the soft limit is often 1,024, for the sake of select()."""
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS says "unlimited" and takes less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_that_fit(wanted: int) -> int:
    """So many connections, or as many as files are left for."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - _OTHERS))
