"""Every labelled query with what each policy would compare with τ."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.metrics.judged import JudgedQueries
from retrieval.index.topk import TopK
from retrieval.policy import PolicyKind, decision_scores
from retrieval.similarity import Float32


@dataclass(frozen=True)
class Scored:
    """Answerable queries, n of them, and unanswerable ones, u, searched and scored.

    relevance: (n, K) and unanswerable_relevance: (u, K) float32 probabilities, None where no model could be fitted.
    """

    judged: JudgedQueries
    unanswerable: TopK
    relevance: Float32 | None
    unanswerable_relevance: Float32 | None

    @property
    def kinds(self) -> tuple[PolicyKind, ...]:
        """Policies that can be had, the one that is preferred at equal evidence first.

        Probability means the same from one encoder to the next; a share of the best score does so more than a score.
        """
        return ("relative", "similarity") if self.relevance is None else ("probability", "relative", "similarity")

    def decisions(self, kind: PolicyKind) -> Float32:
        """Decision scores of the answerable queries, (n, K)."""
        return decision_scores(kind, self.judged.top.scores, self.relevance)

    def unanswerable_decisions(self, kind: PolicyKind) -> Float32:
        """Decision scores of the unanswerable queries, (u, K)."""
        return decision_scores(kind, self.unanswerable.scores, self.unanswerable_relevance)

    def take(self, rows: NDArray[np.int64]) -> "Scored":
        """The answerable queries at `rows`, with all of the unanswerable ones."""
        relevance = None if self.relevance is None else self.relevance[rows]
        return Scored(self.judged.take(rows), self.unanswerable, relevance, self.unanswerable_relevance)
