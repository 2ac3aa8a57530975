"""GPUs on which FAISS searches and onnxruntime encodes, if their builds for GPUs are installed."""

import contextlib
import functools
import io
import logging
import re
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

# Files of the drivers: NVIDIA's on Linux, Microsoft's in WSL, AMD's. FAISS has no other builds for GPUs.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
_CUDA = "CUDAExecutionProvider"
# TF32 has 10 bits of fraction: scores would differ from the certified ones by more than the golden queries allow.
_CUDA_OPTIONS = {"use_tf32": "0", "arena_extend_strategy": "kSameAsRequested"}
# In messages of onnxruntime and of FAISS, which otherwise name their source files.
_CUDA_FAILURE = re.compile(r"CUDA failure [^;]*|(?<=\()cuda\w* error [^)]*")
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


def has_driver() -> bool:
    """Return whether this machine has a driver of a GPU."""
    return any(Path(driver).exists() for driver in _DRIVERS)


def gpu_count() -> int:
    """Return how many GPUs this faiss build can use; a machine without a driver does not load FAISS for that."""
    if not has_driver():
        return 0
    import faiss  # slow to load, and a service that only cuts results does not need it

    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


@functools.cache
def _resources() -> Any:  # noqa: ANN401 (faiss has no types)
    """Return what all indexes of this process share on the GPU: each such object reserves up to 1.5 GiB of its memory.

    It has one user at a time (faiss wiki, "Threads and asynchronous calls"), so searches on the GPU take turns.
    """
    import faiss

    return faiss.StandardGpuResources()


class GpuCopy:
    """A copy of an index of FAISS on the first GPU, which finds nothing if there is no GPU or once the GPU has failed.

    Args:
        index: The index; its class must be one that FAISS copies to a GPU.
        kind: Name of its kind, for the log.
    """

    _turn = RLock()  # a thread may have to free one copy while it searches another

    def __init__(self, index: Any, kind: str) -> None:  # noqa: ANN401
        self._kind = kind
        self._index: Any = None
        if not gpu_count():
            return
        import faiss

        with self._turn:
            try:
                self._index = faiss.index_cpu_to_gpu(_resources(), 0, index)
            except RuntimeError as error:
                self._log_failure(error)
            else:
                _log.info("an index is searched on the GPU", extra={"fields": {"index": kind}})

    def __bool__(self) -> bool:
        return self._index is not None

    def __del__(self) -> None:
        with self._turn:
            self._index = None

    def find(self, search: Callable[[Any], _T]) -> _T | None:
        """Return the result of a search of the copy, or None if the original has to be searched."""
        index = self._index
        if index is None:
            return None
        with self._turn:
            try:
                return search(index)
            except RuntimeError as error:
                self._log_failure(error)
                self._index = index = None
                return None

    def _log_failure(self, error: RuntimeError) -> None:
        fields = {"index": self._kind, "reason": _reason(error)}
        _log.warning("an index is searched on processors, not on the GPU", extra={"fields": fields})


@functools.cache
def cuda_available() -> bool:
    """Return whether onnxruntime can try a GPU: this machine has a driver, and the installed build is for CUDA.

    Loads the CUDA libraries that are installed as packages.
    """
    if not has_driver():
        return False
    import onnxruntime

    if _CUDA not in onnxruntime.get_available_providers():
        return False
    onnxruntime.set_default_logger_severity(4)  # fatal only: whether the GPU is used is logged here
    with contextlib.redirect_stdout(io.StringIO()):  # it prints which libraries are missing
        onnxruntime.preload_dlls()
    return True


def new_session(model: Path, options: Any) -> Any:  # noqa: ANN401 (its module is loaded only to encode)
    """Return a session of onnxruntime that computes a model on the first GPU, otherwise on processors.

    Args:
        model: The graph.
        options: Options of onnxruntime.
    """
    import onnxruntime

    if cuda_available():
        try:
            # Its own way to fall back prints to stdout.
            session = onnxruntime.InferenceSession(str(model), options, [(_CUDA, _CUDA_OPTIONS)], enable_fallback=False)
        except Exception as error:  # noqa: BLE001 (onnxruntime has a type per status code, without a common base)
            fields = {"model": str(model), "reason": _reason(error)}
            _log.warning("a model is computed on processors, not on the GPU", extra={"fields": fields})
        else:
            _log.info("a model is computed on the GPU, in float32", extra={"fields": {"model": str(model)}})
            return session
    elif _CUDA in onnxruntime.get_available_providers() and not has_driver():
        reason = "no GPU is visible here: a pod needs its runtime class and a GPU in its limits, a container --gpus all"
        _log.warning("models are computed on processors, not on the GPU", extra={"fields": {"reason": reason}})
    return onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])


def _reason(error: Exception) -> str:
    failure = _CUDA_FAILURE.search(str(error))
    return (failure[0] if failure else str(error)).strip()


def uses_gpu(session: Any) -> bool:  # noqa: ANN401
    """Return whether a session of onnxruntime computes on a GPU."""
    return bool(session.get_providers()[0] == _CUDA)


def onnxruntime_version() -> str:
    """Return the version of onnxruntime and, on a GPU, that it uses one: both decide the last bits of a vector."""
    import onnxruntime

    return f"{onnxruntime.__version__}{' cuda' if cuda_available() else ''}"
