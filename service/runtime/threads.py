"""Threads of the libraries below, which each start as many as there are processors and keep them spinning for more."""

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
