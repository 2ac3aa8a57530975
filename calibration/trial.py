"""What the gate compares: the same queries answered by one way of encoding and searching."""

from collections.abc import Sequence
from dataclasses import dataclass

from calibration.data.dataset import LabelledQuery
from calibration.gate import DEPTH, Outcome
from retrieval.index import FlatIndex
from retrieval.similarity import Float32


@dataclass(frozen=True)
class Trial:
    """Queries to be answered, q of them with (q, d) vectors, from (N, d) documents, at K."""

    queries: Sequence[LabelledQuery]
    vectors: Float32
    documents: Float32
    k: int

    def outcome(self) -> Outcome:
        """By exact search."""
        top = FlatIndex.build(self.documents).search(self.vectors, max(self.k, DEPTH))
        return Outcome.of(self.queries, top.positions, self.k)
