"""What this process may use: processors and memory, by scheduler and control groups, and GPUs."""

import contextlib
import functools
import io
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

_log = logging.getLogger(__name__)

CGROUP = Path("/sys/fs/cgroup")
_PROCESS_GROUPS = Path("/proc/self/cgroup")  # absent on macOS, which has no control groups
_NO_LIMIT = 1 << 60  # version 1 writes a number of this size if there is no limit

# Files of the drivers: NVIDIA's on Linux, Microsoft's in WSL, AMD's. FAISS has no other builds for GPUs.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
_CUDA = "CUDAExecutionProvider"
# TF32 has 10 bits of fraction: scores would differ from the certified ones by more than the golden queries allow.
_CUDA_OPTIONS = {"use_tf32": "0", "arena_extend_strategy": "kSameAsRequested"}
# In messages of onnxruntime and of FAISS, which otherwise name their source files.
_CUDA_FAILURE = re.compile(r"CUDA failure [^;]*|(?<=\()cuda\w* error [^)]*")
_T = TypeVar("_T")


def processors(root: Path = CGROUP, process_groups: Path = _PROCESS_GROUPS) -> int:
    """Return the number of processors that this process may use, rounded down, at least 1."""
    # This is the minimum of the scheduler's mask and the quotas of the process's control groups. A fraction is left for
    # work other than encoding.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    unified, legacy = _groups(root, process_groups, "cpu")
    quotas = [_read(folder / "cpu.max").split() for folder in unified]
    quotas += [[_read(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")] for folder in legacy]
    return max(1, min([allowed, *(int(ratio) for quota in quotas if (ratio := _ratio(quota)) is not None)]))


def memory_limit(root: Path = CGROUP, process_groups: Path = _PROCESS_GROUPS) -> int | None:
    """Return the bytes of memory that the control groups allow this process; None if they set no limit."""
    unified, legacy = _groups(root, process_groups, "memory")
    texts = [_read(folder / "memory.max") for folder in unified]
    texts += [_read(folder / "memory.limit_in_bytes") for folder in legacy]
    limits = [int(text) for text in texts if text.strip().isdigit()]
    return min((limit for limit in limits if limit < _NO_LIMIT), default=None)


def _groups(root: Path, process_groups: Path, controller: str) -> tuple[list[Path], list[Path]]:
    """Return the folders of this process's control groups, of versions 2 and 1, and of their parents."""
    groups = [line.split(":", 2) for line in _read(process_groups).splitlines() if line.count(":") >= 2]
    unified = [path for number, controllers, path in groups if number == "0" and not controllers]
    legacy = [path for _, controllers, path in groups if controller in controllers.split(",")]
    return (
        [folder for path in unified for folder in _upwards(root, path)],
        [folder for path in legacy for folder in _upwards(root / controller, path)],
    )


def _upwards(root: Path, path: str) -> list[Path]:
    """Return a group's folder and its parents, as the smallest quota applies; in a container the root is the group."""
    folder = root / path.lstrip("/")
    return [root, *(parent for parent in (folder, *folder.parents) if root in parent.parents)]


def _ratio(numbers: list[str]) -> float | None:
    """Return quota divided by period; None without a quota: "max" in version 2, −1 in version 1, or no such file."""
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers) or int(numbers[1]) == 0:
        return None
    return int(numbers[0]) / int(numbers[1])


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""


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
    """A copy of an index of FAISS on the first GPU, which is None if there is no GPU, or once the GPU has failed."""

    _turn = RLock()  # a thread may have to free one copy while it searches another

    def __init__(self, index: Any, kind: str) -> None:  # noqa: ANN401
        self._kind = kind
        self.index: Any = None
        if not gpu_count():
            return
        import faiss

        with self._turn:
            try:
                self.index = faiss.index_cpu_to_gpu(_resources(), 0, index)
            except RuntimeError as error:
                self._log_failure(error)
            else:
                _log.info("an index is searched on the GPU", extra={"fields": {"index": kind}})

    def __del__(self) -> None:
        with self._turn:
            self.index = None

    def find(self, search: Callable[[Any], _T]) -> _T | None:
        """Return the result of a search of the copy, or None if the original has to be searched."""
        index = self.index
        if index is None:
            return None
        with self._turn:
            try:
                return search(index)
            except RuntimeError as error:
                self._log_failure(error)
                self.index = index = None
                return None

    def _log_failure(self, error: RuntimeError) -> None:
        fields = {"index": self._kind, "reason": _reason(error)}
        _log.warning("an index is searched on processors, not on the GPU", extra={"fields": fields})


@functools.cache
def cuda_available() -> bool:
    """Return whether onnxruntime can try a GPU: this machine has a driver, and the installed build is for CUDA."""
    # Loads the CUDA libraries that are installed as packages.
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
    """Return a session of onnxruntime that computes a model on the first GPU, otherwise on processors."""
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
