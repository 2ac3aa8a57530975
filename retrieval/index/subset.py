"""The same kind of index of fewer documents, made of what an index stores."""

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError
from taugate.retrieval.index.approximate import ApproximateIndex
from taugate.retrieval.index.build import FEWEST_FOR_CODES, AnyIndex, build
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.stored import codes


def subset(index: AnyIndex, kept: NDArray[np.int64]) -> AnyIndex:
    """An index of the documents at `kept`, (M,) rising positions, M ≥ 1, which scores each as before, to the bit.

    float32 and float16 are stored exactly and built again as `build` does; int8 codes are copied, with the ranges that
    they stand for. A graph, or lists, are built anew and as broad as before: what they find may differ. Raises
    InputError where fewer are left than codes take to train.
    """
    if index.kind == "flat-int8":
        return FlatIndex(_of_codes(index.faiss, kept), index.kind, index.dimension)
    if index.kind == "ivf-pq" and len(kept) < FEWEST_FOR_CODES:
        raise InputError(
            f"{len(kept)} documents are too few for ivf-pq, which takes {FEWEST_FOR_CODES}; calibrate again"
        )
    fewer = build(index.kind, index.vectors[kept])
    if isinstance(index, ApproximateIndex) and isinstance(fewer, ApproximateIndex):
        fewer.breadth = index.breadth
    return fewer


def _of_codes(index: Any, kept: NDArray[np.int64]) -> Any:  # noqa: ANN401 (faiss has no types)
    fewer = faiss.IndexScalarQuantizer(index.d, index.sq.qtype, index.metric_type)
    fewer.sq = index.sq
    fewer.is_trained = True
    fewer.add_sa_codes(np.ascontiguousarray(codes(index)[kept]))
    return fewer
