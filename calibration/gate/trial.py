"""What the gate compares: the same queries answered by one way of encoding and searching."""

from collections.abc import Sequence
from dataclasses import dataclass

from taugate.calibration.gate.gate import DEPTH, Outcome
from taugate.ingestion.dataset.dataset import LabelledQuery
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.topk import Index
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class Trial:
    """Queries to be answered, q of them with (q, d) vectors, from (N, d) documents, at K."""

    queries: Sequence[LabelledQuery]
    vectors: Float32
    documents: Float32
    k: int

    @property
    def depth(self) -> int:
        """How many results are judged."""
        return max(self.k, DEPTH)

    def outcome(self, index: Index | None = None) -> Outcome:
        """By `index`, and without one by exact search."""
        top = (index or FlatIndex.build(self.documents)).search(self.vectors, self.depth)
        return Outcome.of(self.queries, top.positions, self.k)
