"""Kinds of index, by the name that the command line and the manifest use, and how vectors are padded for them."""

from typing import Literal

import faiss
import numpy as np

from taugate.retrieval.vectors.similarity import Float32

INDEX = "index.faiss"  # the file of an index
VECTORS = "vectors.faiss"  # beside it, of an index whose own codes are not exact
Kind = Literal["flat", "flat-float16", "flat-int8", "hnsw", "ivf-flat", "ivf-pq"]

# FAISS's class of each kind: an index that is read from a file is an instance of exactly this.
FAISS_TYPES: dict[Kind, type] = {
    "flat": faiss.IndexFlatIP,
    "flat-float16": faiss.IndexScalarQuantizer,
    "flat-int8": faiss.IndexScalarQuantizer,
    "hnsw": faiss.IndexHNSWFlat,
    "ivf-flat": faiss.IndexIVFFlat,
    "ivf-pq": faiss.IndexIVFPQ,
}
QUANTIZERS: dict[Kind, int] = {
    "flat-float16": faiss.ScalarQuantizer.QT_fp16,
    "flat-int8": faiss.ScalarQuantizer.QT_8bit,
}
COMPONENTS_A_CODE = 4  # components of a vector in one byte of product quantisation
# Vectors are padded with zeros to a multiple of these: FAISS reads scalar codes 16 at a time, and several times slower
# where they do not come out even.
_MULTIPLES: dict[Kind, int] = {"flat-float16": 16, "flat-int8": 16, "ivf-pq": COMPONENTS_A_CODE}


def padded_dimension(kind: Kind, dimension: int) -> int:
    """Return the length at which an index of a kind stores vectors of length `dimension`."""
    return dimension + -dimension % _MULTIPLES.get(kind, 1)


def padded(vectors: Float32, dimension: int) -> Float32:
    """Pad vectors with zeros.

    vectors: (n, d) float32. dimension: their length afterwards, at least d. Returns (n, dimension) float32, contiguous.
    """
    missing = dimension - vectors.shape[1]
    whole = np.pad(vectors, ((0, 0), (0, missing))) if missing else vectors
    return np.ascontiguousarray(whole, dtype=np.float32)
