"""GPUs on which FAISS searches and onnxruntime encodes, if their builds for GPUs are installed."""

import contextlib
import functools
import io
import logging
import re
from pathlib import Path
from typing import Any

# Files of the drivers: NVIDIA's on Linux, Microsoft's in WSL, AMD's. FAISS has no other builds for GPUs.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
_CUDA = "CUDAExecutionProvider"
# TF32 has 10 bits of fraction: scores would differ from the certified ones by more than the golden queries allow.
_CUDA_OPTIONS = {"use_tf32": "0", "arena_extend_strategy": "kSameAsRequested"}
_CUDA_FAILURE = re.compile(r"CUDA failure [^;]*")  # in a message of onnxruntime that otherwise names its source files
_log = logging.getLogger(__name__)


def has_driver() -> bool:
    """Return whether this machine has a driver of a GPU."""
    return any(Path(driver).exists() for driver in _DRIVERS)


def gpu_count() -> int:
    """Return how many GPUs this faiss build can use; a machine without a driver does not load FAISS for that."""
    if not has_driver():
        return 0
    import faiss  # slow to load, and a service that only cuts results does not need it

    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def copy_to_gpu(index: Any) -> Any:  # noqa: ANN401 (faiss has no types)
    """Return a copy of an index of FAISS on the first GPU, or None if this faiss build or machine has none."""
    if not gpu_count():
        return None
    import faiss

    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)


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
            failure = _CUDA_FAILURE.search(str(error))
            reason = (failure[0] if failure else str(error)).strip()
            _log.warning("a model is computed on processors, not on the GPU", extra=_fields(model, reason))
        else:
            _log.info("a model is computed on the GPU, in float32", extra=_fields(model))
            return session
    return onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])


def _fields(model: Path, reason: str = "") -> dict[str, dict[str, str]]:
    return {"fields": {"model": str(model)} | ({"reason": reason} if reason else {})}


def uses_gpu(session: Any) -> bool:  # noqa: ANN401
    """Return whether a session of onnxruntime computes on a GPU."""
    return bool(session.get_providers()[0] == _CUDA)


def onnxruntime_version() -> str:
    """Return the version of onnxruntime and, on a GPU, that it uses one: both decide the last bits of a vector."""
    import onnxruntime

    return f"{onnxruntime.__version__}{' cuda' if cuda_available() else ''}"
