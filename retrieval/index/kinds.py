"""Kinds of index, by the name that the command line and the manifest use."""

from typing import Literal

import faiss

Kind = Literal["flat", "flat-float16", "flat-int8", "hnsw", "ivf-flat", "ivf-pq"]

# What FAISS calls them: read from a file, an index of a kind is an instance of exactly this.
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
