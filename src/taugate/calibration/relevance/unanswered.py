"""Questions that no document answers: relevance is low for their results, too, however similar these are.

A model that learns from answerable queries alone takes for granted that there is an answer. Half of the queries are
assumed to have none. The share decides how far relevance falls for a query that could be either: with a share s below
a half in the traffic, the true odds of relevance are between those returned and (1 − s) / s times as high.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.clusters import ClusterIds
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.policy import Mask
from taugate.retrieval.vectors.queries import QueryVectors

# Share that the user's own have among the unanswerable ones, as they are what users ask. On three other sets than those
# that chose it, the error of results with a relevance of .2 or more is .038 to .050, and .038 to .119 if all kinds
# weigh the same (docs/research/calibration.md, "Relevance of questions without an answer"). It is no lower with 1.
_OWN_SHARE = 0.8
_MIN_OWN = 30  # fewer say too little to outweigh the other kinds

# Half, as nothing is known of the traffic, and half of SQuAD 2.0's questions are unanswerable (Rajpurkar et al. 2018).
UNANSWERABLE_SHARE = 0.5


@dataclass(frozen=True)
class UnansweredQuestions:
    """Questions of one kind that no document answers, with their results.

    Attributes:
        top: Their (m, K) results, best first.
        vectors: (m, d) float32.
        clusters: (m,) cluster of each question, numbered with those of the labelled queries; questions made from one
            query, or about one document, share it.
        own: Whether the user labelled them.
    """

    top: TopK
    vectors: QueryVectors
    clusters: ClusterIds
    own: bool = False

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, part: Mask) -> Self:
        """Take the questions in a (m,) mask."""
        top = TopK(self.top.scores[part], self.top.positions[part])
        return replace(self, top=top, vectors=self.vectors[part], clusters=self.clusters[part])


@dataclass(frozen=True)
class Unanswered:
    """Questions that no document answers, by kind, without empty kinds; no question is in both parts.

    Attributes:
        learning: Questions that the model learns from. The first kind are those about other subjects, which also fit
            the chance that a query is about the documents.
        measuring: Questions that measure the model.
    """

    learning: Sequence[UnansweredQuestions]
    measuring: Sequence[UnansweredQuestions]


def kind_shares(kinds: Sequence[UnansweredQuestions]) -> list[float]:
    """Return the share of each kind among the unanswerable questions: four fifths for 30 or more of the user's own."""
    counts = [kind.own and len(kind) >= _MIN_OWN for kind in kinds]
    own = _OWN_SHARE if any(counts) and not all(counts) else 0.0
    others = counts.count(False)
    return [own if counted and own else (1 - own) / (others or 1) for counted in counts]


def mixture_weights(answerable: int, kinds: Sequence[int], shares: Sequence[float]) -> NDArray[np.float64]:
    """Return weights of queries, which make UNANSWERABLE_SHARE of them unanswerable.

    Args:
        answerable: n, the number of answerable queries, which weigh 1 each.
        kinds: Number of questions of each kind, 1 or more.
        shares: Share of each kind among the unanswerable questions.

    Returns:
        (n + Σ kinds,) weights: of the answerable queries, then of the questions.
    """
    total = answerable * UNANSWERABLE_SHARE / (1 - UNANSWERABLE_SHARE)
    weights = [np.full(questions, total * share / questions) for questions, share in zip(kinds, shares, strict=True)]
    return np.concatenate([np.ones(answerable), *weights])
