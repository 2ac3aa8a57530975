"""What every kind of index is: an index of FAISS that proposes documents, and the vectors that they are scored by."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.index.kinds import Kind
from retrieval.similarity import Float32, Vectors, pair_similarity


class StoredIndex:
    """N documents of one dimension; `vectors` reads what is stored of them."""

    def __init__(self, index: Any, kind: Kind, vectors: Vectors) -> None:  # noqa: ANN401 (faiss has no types)
        self.faiss = index
        self.kind = kind
        self.vectors = vectors

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return int(self.faiss.ntotal)

    def score(self, queries: Float32, positions: NDArray[np.int64]) -> Float32:
        """Similarity of query i with the documents at `positions[i]`, (n, c)."""
        return pair_similarity(queries, self.vectors, positions)
