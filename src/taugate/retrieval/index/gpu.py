"""GPUs on which FAISS can search."""

from pathlib import Path
from typing import Any

# Files of the drivers: NVIDIA's on Linux, Microsoft's in WSL, AMD's. FAISS has no other builds for GPUs.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


def gpu_count() -> int:
    """Return how many GPUs this faiss build can use; a machine without a driver does not load FAISS for that."""
    if not any(Path(driver).exists() for driver in _DRIVERS):
        return 0
    import faiss  # slow to load, and a service that only cuts results does not need it

    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def copy_to_gpu(index: Any) -> Any:  # noqa: ANN401 (faiss has no types)
    """Return a copy of an index of FAISS on the first GPU, or None if this faiss build or machine has none."""
    if not gpu_count():
        return None
    import faiss

    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
