"""Copies of an index on a GPU, where there is one."""

from typing import Any

import faiss

MOST_NEIGHBOURS = 2048  # a query, and lists probed (faiss wiki, "Faiss on the GPU", limitations)


def gpus() -> int:
    """GPUs that this faiss build can use."""
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def on_gpu(index: Any) -> Any:  # noqa: ANN401 (faiss has no types)
    """A copy of `index` on the first GPU, or None where this faiss build or machine has none."""
    if not gpus():
        return None
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
