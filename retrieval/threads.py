"""Threads of the libraries below, which each start as many as there are processors and keep them spinning for more."""

import faiss
from threadpoolctl import threadpool_limits


def one_for_blas() -> None:
    """NumPy's products on the thread that asks for them: those of a reply are too small to share, for this process."""
    threadpool_limits(1, user_api="blas")


def for_search(threads: int) -> None:
    """FAISS's threads for the searches of the calling thread, as OpenMP counts them."""
    faiss.omp_set_num_threads(threads)
