"""What a search gives, and what an index is to everything else."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.within import Within
from taugate.retrieval.vectors.similarity import Float32

# Candidates beyond K, so that FAISS's own rounding cannot push a document of the top-K out of them.
SPARE = 16
# Above so many candidates for one query, every document is scored instead: a corpus of copies of one text.
MOST_CANDIDATES = 1024


@dataclass(frozen=True)
class TopK:
    """The K most similar documents of n queries, best first; float32 (n, K) scores and int64 (n, K) positions."""

    scores: Float32
    positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)


class Scored(Protocol):
    """Documents that a query can be compared with."""

    def score(self, queries: Float32, positions: NDArray[np.int64]) -> Float32:
        """Similarity of query i with the documents at `positions[i]`, to the bit as a search has it; (n, c)."""
        ...

    def __len__(self) -> int: ...


class Searched(Scored, Protocol):
    """Documents that a query finds by similarity."""

    def search(self, queries: Float32, k: int) -> TopK:
        """The min(k, N) most similar documents of each query, ties to the lower position; queries: (n, d) unit."""
        ...


class Index(Searched, Protocol):
    """Documents by similarity, as what is stored of them says."""

    def search_within(self, queries: Float32, k: int, within: Within) -> TopK:
        """The min(k, M) most similar of the M documents in `within`, exactly, whatever the kind; M may be 0."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a query's vector."""
        ...
