"""What every kind of index is: an index of FAISS that proposes documents, and the vectors that they are scored by."""

from functools import partial
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.complete import complete
from taugate.retrieval.index.kinds import QUANTIZERS, Kind, padded
from taugate.retrieval.index.ranking import among
from taugate.retrieval.index.topk import SPARE, TopK
from taugate.retrieval.index.within import Within
from taugate.retrieval.vectors.similarity import Float32, Vectors, pair_similarity, rounding_bound

# Where fewer than one document in so many may be found, each is scored by itself: `similarity` takes longer than FAISS
# for one that it scores, and FAISS passes over each that it does not. About where both took as long on mixed_large;
# `--tables filters` of benchmarks/serving has a line on either side.
_ONE_IN = 128


class StoredIndex:
    """N documents of one dimension; `vectors` reads what is stored of them."""

    def __init__(self, index: Any, kind: Kind, vectors: Vectors) -> None:  # noqa: ANN401 (faiss has no types)
        self.faiss = index
        self.kind = kind
        self.vectors = vectors
        self._whole = index  # what compares a query with all that is stored
        # FAISS reads int8 by another sequence of float32 operations than `stored` does.
        self._bound = rounding_bound(index.d) * (2 if kind in QUANTIZERS else 1)

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return int(self.faiss.ntotal)

    def score(self, queries: Float32, positions: NDArray[np.int64]) -> Float32:
        """Similarity of query i with the documents at `positions[i]`, (n, c)."""
        return pair_similarity(queries, self.vectors, positions)

    def search_within(self, queries: Float32, k: int, within: Within) -> TopK:
        """The min(k, M) most similar of the M documents in `within`, exactly, whatever the kind; M may be 0.

        queries: (n, d) float32 of unit length. Ties in similarity go to the lower position. Always on the CPU.
        """
        members = within.positions
        if len(members) > max(k + SPARE, len(self) // _ONE_IN):
            propose = partial(self._scan, within=within)
            return complete(self, propose, self._bound, queries, k, members)
        found = [among(self, queries[row : row + 1], k, members) for row in range(len(queries))]
        scores, positions = zip(*found, strict=True)
        return TopK(np.stack(scores), np.stack(positions))

    def _scan(self, queries: Float32, fetch: int, within: Within) -> tuple[Float32, NDArray[np.int64]]:
        """Everything stored that is within."""
        whole = self._whole
        if isinstance(whole, faiss.IndexIVF):
            parameters = faiss.SearchParametersIVF(sel=within.selector, nprobe=whole.nlist)
        else:
            parameters = faiss.SearchParameters(sel=within.selector)
        rough, found = whole.search(padded(queries, whole.d), fetch, params=parameters)
        return rough, found
