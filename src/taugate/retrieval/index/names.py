"""The kinds of index and the files that hold one, for code that reads releases without loading FAISS."""

from dataclasses import dataclass
from typing import Literal

INDEX = "index.faiss"  # the file of an index
VECTORS = "vectors.faiss"  # the exact vectors of an index whose codes only propose documents
Kind = Literal["flat", "flat-float16", "flat-int8", "hnsw", "ivf-flat", "ivf-pq"]
CENTROIDS_A_CODE = 256
POINTS_A_CENTROID = 39  # FAISS's minimum for training
MIN_FOR_CODES = CENTROIDS_A_CODE * POINTS_A_CENTROID
# An upper limit of the weight only rules out mistakes: at this weight, the cosine hardly matters.
MAX_WEIGHT = 10.0


@dataclass(frozen=True)
class IndexKind:
    """A kind of index.

    Attributes:
        vectors_beside: Whether VECTORS is beside its file; if both are possible, its own file tells, because releases
            of 0.2 and before have none.
        least: Smallest number of documents that can be indexed.
        baseline: Whether it is the exact search that others are compared with.
        lossless: Whether it is proven to return what exact search returns.
    """

    vectors_beside: tuple[bool, ...] = (False,)
    least: int = 0
    baseline: bool = False
    lossless: bool = False


INDEX_KINDS: dict[Kind, IndexKind] = {
    "flat": IndexKind(baseline=True),
    "flat-float16": IndexKind(),
    "flat-int8": IndexKind((True, False), lossless=True),
    "hnsw": IndexKind((True, False)),
    "ivf-flat": IndexKind(),
    "ivf-pq": IndexKind((True,), least=MIN_FOR_CODES),
}
