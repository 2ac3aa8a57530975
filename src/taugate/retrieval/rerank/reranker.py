"""The interface of rerankers: score how well documents answer a query.

Some read the documents' texts (`TextScorer`); late interaction compares vectors that the release stores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from taugate.errors import RerankerUnavailable
from taugate.policy.arrays import Float32
from taugate.retrieval.documents.store import Documents
from taugate.retrieval.index.top_k import Candidate


class PairScorer(Protocol):
    """What all kinds of rerankers have."""

    @property
    def parallel(self) -> int:
        """How many queries are scored at the same time; 1 if one query already uses all processors."""
        ...

    def forget(self) -> None:
        """Forget scores that it remembers."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


class Reranker(PairScorer, Protocol):
    """Scores how well documents answer a query. `score` may be called by several threads."""

    def score(self, query: str, positions: NDArray[np.int64], deadline: float | None = None) -> Float32:
        """Score n documents.

        Args:
            positions: (n,) int64 positions of the documents.
            deadline: Time of `time.monotonic` after which nobody needs the scores; None to take as long as necessary.

        Returns:
            (n,) float32 finite scores, higher is better.

        Raises:
            RerankerUnavailable: If there are no scores, or not in time.
        """
        ...

    def reading(self, candidates: Mapping[int, Candidate]) -> "Reranker":
        """Return the same for documents that are all among `candidates`, which an engine has returned."""
        ...


class TextScorer(PairScorer, Protocol):
    """Scores the pairs of a query and several texts. `score` may be called by several threads."""

    def score(self, query: str, texts: Sequence[str], deadline: float | None = None) -> Float32:
        """Score the pairs of a query and n texts, (n,) float32; otherwise like `Reranker.score`."""
        ...


@dataclass(frozen=True)
class TextReranker:
    """Reads the texts of documents, and has them scored."""

    scorer: TextScorer
    documents: Documents
    # what an engine has returned of them already, by position; empty to read all from `documents`
    candidates: Mapping[int, Candidate] = field(default_factory=dict)

    def reading(self, candidates: Mapping[int, Candidate]) -> Self:
        """See `Reranker`."""
        return replace(self, candidates=candidates)

    @property
    def parallel(self) -> int:
        """See `PairScorer`."""
        return self.scorer.parallel

    def score(self, query: str, positions: NDArray[np.int64], deadline: float | None = None) -> Float32:
        """See `Reranker`."""
        if self.candidates:
            documents = [self.candidates[position].document for position in positions.tolist()]
        else:
            documents = self.documents.at(positions)
        texts = [document.encoded_text for document in documents]
        return self.scorer.score(query, texts, deadline)

    def forget(self) -> None:
        """See `PairScorer`."""
        self.scorer.forget()

    def close(self) -> None:
        """See `PairScorer`."""
        self.scorer.close()


def checked_scores(scores: Float32, texts: int, name: str) -> Float32:
    """Return scores if there is a finite one for each text.

    Args:
        scores: (n,) float32.

    Raises:
        RerankerUnavailable: If there are others.
    """
    if scores.shape != (texts,) or not np.isfinite(scores).all():
        raise RerankerUnavailable(f"{name}: does not give {texts} texts one finite score each; use another model")
    return scores
