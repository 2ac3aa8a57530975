"""Queries as an index compares them with documents: vectors and, if the score has a lexical part, their words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.vectors.similarity import Float32

Terms = NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class HybridVectors:
    """The vectors of n queries and their words.

    Attributes:
        dense: (n, d) float32 of unit length.
        terms: The terms of each query, (t,) uint32 each: distinct and ascending, see `words.query_terms`.
    """

    dense: Float32
    terms: tuple[Terms, ...]

    def __len__(self) -> int:
        return len(self.terms)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""
        return self.dense.shape

    def __getitem__(self, rows: slice | NDArray[Any] | Sequence[int]) -> Self:
        """Return some of the queries, chosen by a slice, positions or a mask."""
        chosen = np.arange(len(self))[rows]
        return type(self)(self.dense[chosen], tuple(self.terms[row] for row in chosen.tolist()))


QueryVectors = Float32 | HybridVectors


def dense_of(queries: QueryVectors) -> Float32:
    """Return the vectors of queries without their words, (n, d) float32."""
    return queries.dense if isinstance(queries, HybridVectors) else queries


def map_dense(queries: QueryVectors, change: Callable[[Float32], Float32]) -> QueryVectors:
    """Change the vectors of queries, such as by a projection, and keep their words if they have any."""
    return replace(queries, dense=change(queries.dense)) if isinstance(queries, HybridVectors) else change(queries)


def concatenate(parts: Sequence[QueryVectors]) -> QueryVectors:
    """Join queries, all with words or all without."""
    dense = np.concatenate([dense_of(part) for part in parts])
    hybrid = [part for part in parts if isinstance(part, HybridVectors)]
    if not hybrid:
        return dense
    if len(hybrid) < len(parts):
        raise TypeError("some queries have words and others have none")
    return HybridVectors(dense, tuple(chain.from_iterable(part.terms for part in hybrid)))
