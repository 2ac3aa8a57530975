"""Every labelled query with what each policy would compare with τ, and what its users would get."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.policy import Mask, PolicyKind, decision_scores, keep_answered
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class Answering:
    """Scores by which queries are answered or refused as a whole, (n,) and (u,) float32, and the threshold of both."""

    answerable: Float32
    unanswerable: Float32
    threshold: np.float32


@dataclass(frozen=True)
class Scored:
    """Answerable queries, n of them, and unanswerable ones, u, searched and scored.

    relevance: (n, K) and unanswerable_relevance: (u, K) float32 probabilities, None where no model could be fitted;
    answering: None where no query is refused as a whole.
    """

    judged: JudgedQueries
    unanswerable: TopK
    relevance: Float32 | None
    unanswerable_relevance: Float32 | None
    answering: Answering | None = None

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

    def kept(self, kind: PolicyKind, threshold: np.float32 | None) -> Mask:
        """Which results of the answerable queries users get, (n, K); threshold: of the policy, None for no cut."""
        answered = None if self.answering is None else self.answering.answerable >= self.answering.threshold
        return keep_answered(self.decisions(kind), threshold, answered)

    def unanswerable_kept(self, kind: PolicyKind, threshold: np.float32 | None) -> Mask:
        """The same of the unanswerable queries, (u, K)."""
        answered = None if self.answering is None else self.answering.unanswerable >= self.answering.threshold
        return keep_answered(self.unanswerable_decisions(kind), threshold, answered)

    def deciding(self, kind: PolicyKind, threshold: np.float32 | None) -> tuple[Float32, Float32, np.float32 | None]:
        """What decides whether a query gets anything, (n, k) and (u, k), and the threshold that one of k has to reach.

        A score of the query as a whole, k = 1; without one the decision scores of its K results.
        """
        if self.answering is None:
            return self.decisions(kind), self.unanswerable_decisions(kind), threshold
        asked = self.answering
        return asked.answerable[:, None], asked.unanswerable[:, None], asked.threshold

    def take(self, rows: NDArray[np.int64]) -> "Scored":
        """The answerable queries at `rows`, with all of the unanswerable ones."""
        relevance = None if self.relevance is None else self.relevance[rows]
        answering = self.answering and replace(self.answering, answerable=self.answering.answerable[rows])
        return Scored(self.judged.take(rows), self.unanswerable, relevance, self.unanswerable_relevance, answering)
