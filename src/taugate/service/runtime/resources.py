"""Resources of the process: threads and their priority, memory, disk space, and the open-file limit."""

import contextlib
import ctypes
import gc
import logging
import os
import resource
import sys
import threading
from pathlib import Path

from threadpoolctl import threadpool_limits

from taugate.errors import InputError
from taugate.release.encoder import DATA, MODEL, WEIGHTS
from taugate.release.layout import ENCODER_FOLDER, FLOAT32_FOLDER, LEXICAL, METADATA, QUERY_FOLDER
from taugate.release.names import INDEX
from taugate.retrieval.hardware import memory_limit

_log = logging.getLogger(__name__)

# A ninth of the share of a thread that is not niced (sched(7)), so that a request is refused within milliseconds while
# every processor encodes (benchmarks/results/serving.md, "Overload").
_NICENESS = 10
_RESERVED_FILES = 256  # for the release, logs, Redis, the listening socket, and files that libraries open temporarily
_BLOCK_BYTES = 1 << 16
# One file per type of metric and aggregation of gauges (service/metrics.py), named by prometheus_client.
_METRIC_FILES = ("counter", "histogram", "gauge_livesum", "gauge_livemin", "gauge_livemax", "gauge_livemostrecent")
# Four times the initial size in prometheus_client. The largest file, of counters, has 150 bytes per series: 200 API
# keys take some 30 kB, and all other counters 15 kB.
_METRIC_FILE_BYTES = 256 << 10


# The process with all-MiniLM-L6-v2 in int8, 320 MB, less its weights (docs/operations.md, "Capacity").
_PROCESS_BYTES = 300 << 20
_READ_WHOLE = {INDEX, LEXICAL, METADATA, MODEL, DATA, WEIGHTS}  # other files are mapped, and read in part
_TIGHT = 0.8  # share of the limit; the rest is for replies, the cache, and a release that replaces this one
_WAY_OUT = (
    "raise the limit (in the chart, resources.limits.memory), or calibrate with a smaller index, such as "
    'index = "flat-int8"'
)


def limit_blas_threads() -> None:
    """Make NumPy multiply on the calling thread in this process: the matrices of a reply are too small to share."""
    threadpool_limits(1, user_api="blas")


def lower_priority() -> None:
    """Give the calling thread a lower priority than threads that are not niced, such as the event loop."""
    # Only Linux has a niceness per thread; on other systems this does nothing.
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def search_in_background(threads: int = 1) -> None:
    """Lower the priority of the calling thread, for whose searches FAISS uses so many threads, including itself."""
    if (faiss := sys.modules.get("faiss")) is not None:  # else this process does not search
        faiss.omp_set_num_threads(threads)
    lower_priority()


def freeze_objects() -> None:
    """Exempt all loaded objects from garbage collection, which would traverse them again and again."""
    # Under load these traversals delay the slowest refusals (benchmarks/results/serving.md, "Overload").
    gc.collect()
    gc.freeze()


def release_memory() -> None:
    """Free unreferenced objects, including frozen ones, and return their memory to the system."""
    # glibc retains freed memory, including that of an encoder's weights. Without this, a process that replaces
    # its release remains as large as the largest two that it ever held at once.
    gc.unfreeze()
    freeze_objects()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only in glibc
        if trim is not None:
            trim(0)


# Every search reads the whole index. If the control group allows less, the system maps it in again and again: the
# process is not killed, but answers nothing, and no message says why. So this is asked before a release is loaded.
def bytes_held(release: Path) -> int:
    """Return the bytes of memory that a release takes in a process that searches it, from the sizes of its files."""
    unused = {FLOAT32_FOLDER, ENCODER_FOLDER if (release / QUERY_FOLDER).is_dir() else QUERY_FOLDER}
    held = [path for path in release.rglob("*") if path.name in _READ_WHOLE and path.parent.name not in unused]
    return sum(path.stat().st_size for path in held)


def check_memory(*releases: Path) -> str | None:
    """Return a warning, also logged, if releases in one process leave little of the memory that is allowed."""
    limit = memory_limit()
    needed = _PROCESS_BYTES + sum(map(bytes_held, releases))
    if limit is None or needed <= _TIGHT * limit:
        return None
    names = " with the shadow ".join(release.name for release in releases)
    numbers = f"{names} needs {needed / 2**30:.2f} GiB of memory, the control group allows {limit / 2**30:.2f} GiB"
    if needed > limit:
        raise InputError(f"{numbers}: {_WAY_OUT}")
    _log.warning("%s: little is left for replies and for the next release; %s", numbers, _WAY_OUT)
    return f"{numbers}: {_WAY_OUT}"


def raise_file_limit() -> None:
    """Raise the open-file limit as far as the system allows; the soft limit is often 1,024, because of select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS reports "unlimited", but accepts less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_that_fit(requested: int) -> int:
    """Return the number of connections that fit within the open-file limit, at most the requested number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return requested if soft == resource.RLIM_INFINITY else max(1, min(requested, soft - _RESERVED_FILES))


def reserve_metric_files(folder: Path) -> None:
    """Allocate the metric files of this process, because they are mapped: a full disk would kill it later."""
    try:
        for kind in _METRIC_FILES:
            descriptor = os.open(folder / f"{kind}_{os.getpid()}.db", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                allocate_file(descriptor, _METRIC_FILE_BYTES)
            finally:
                os.close(descriptor)
    except OSError as error:
        for path in folder.glob(f"*_{os.getpid()}.db"):  # they hold no metrics yet, and other workers need the space
            path.unlink()
        raise InputError(
            f"{folder}: no space for the workers' metrics ({error.strerror}); free some, or name another folder with "
            "TMPDIR"
        ) from error


def allocate_file(descriptor: int, size: int) -> None:
    """Extend a file to `size` bytes that are allocated on disk, so that writing to a memory map of it cannot fail."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    position = os.fstat(descriptor).st_size  # macOS has no posix_fallocate
    while position < size:
        position += os.pwrite(descriptor, bytes(min(_BLOCK_BYTES, size - position)), position)
