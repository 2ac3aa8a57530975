"""The kinds of index and the files that hold one, for code that reads releases without loading FAISS."""

from typing import Literal

INDEX = "index.faiss"  # the file of an index
VECTORS = "vectors.faiss"  # the exact vectors of an index whose codes only propose documents
Kind = Literal["flat", "flat-float16", "flat-int8", "hnsw", "ivf-flat", "ivf-pq"]
# An upper limit of the weight only rules out mistakes: at this weight, the cosine hardly matters.
MAX_WEIGHT = 10.0
