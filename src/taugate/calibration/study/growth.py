"""Forecasts what becomes of ρ if the corpus doubles with documents like those of today.

The more documents there are, the more similar is the best of them to any question, so a given ρ refuses fewer questions
about other subjects. For random halves of the corpus, ρ is chosen anew, and the present ρ is counted on the best
results in the half. The next doubling is taken to do as much again, to ρ and to the normal quantile of the share of
refused questions. A forecast certifies nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from taugate.calibration.abstention.refusal import RefusalEvidence, ScoredQuestions
from taugate.calibration.relevance.probes import LabelledSearch
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.policy import Mask
from taugate.retrieval.release.refusal_records import DoubledCorpus, QuestionKind
from taugate.retrieval.vectors.similarity import Float32

# The mean of eight random halves varies by a third of what one half does. With half of squad_v2_dev and of
# squadshifts_new_wiki as the corpus, .839 and .743 of the off-topic questions were forecast to be refused after the
# doubling, and .838 and .738 were; ρ was forecast to be .323 and .346, and chosen as .335 and .357.
_HALVES = 8
Best = Callable[[TopK], Float32]


@dataclass(frozen=True)
class Growth:
    """A searched corpus that may double.

    Attributes:
        search: The labelled queries and the questions about other subjects, with their results.
        take: Takes the questions of each kind that choose ρ, by their best scores.
        seed: Draws the halves.
    """

    search: LabelledSearch
    take: Callable[[Best], dict[QuestionKind, ScoredQuestions]]
    seed: int

    def doubled(self, evidence: RefusalEvidence) -> DoubledCorpus:
        """Forecast ρ, and the share of the questions about other subjects that the present ρ will refuse."""
        parents, passages = self.search.dataset.parents, len(self.search.dataset.documents)
        owners, documents = np.unique(np.arange(passages) if parents is None else parents, return_inverse=True)
        rng, count = np.random.default_rng(self.seed), len(owners)
        halves = []
        for _ in range(_HALVES):
            chosen = np.zeros(count, dtype=np.bool_)
            chosen[rng.permutation(count)[: count // 2]] = True
            halves.append(self._half(evidence, chosen[documents]))
        rho, refused = np.mean(halves, axis=0)
        questions = evidence.kinds["off_topic"]
        now = _refused(questions, evidence.rho)
        share = stats.norm.cdf(2 * _quantile(now, questions) - _quantile(refused, questions))
        return DoubledCorpus(documents=2 * count, rho=float(np.float32(2 * evidence.rho - rho)), refused=float(share))

    def _half(self, evidence: RefusalEvidence, within: Mask) -> tuple[float, float]:
        """Return the ρ of a half of the passages, (N,) bool, and the share that the present ρ refuses there."""

        def best(top: TopK) -> Float32:
            inside = within[top.positions]  # nearly always one of them is; else the last of the list is about as good
            place = np.where(inside.any(axis=1), inside.argmax(axis=1), -1)
            scores: Float32 = top.scores[np.arange(len(place)), place]
            return scores

        judged, right = self.search.judged, evidence.right
        if right is not None:
            answered = np.flatnonzero(judged.accuracy() > 0)
            remaining: Mask = np.any(judged.relevant & within[judged.top.positions], axis=1)
            remains = np.flatnonzero(remaining[answered])
            right = ScoredQuestions(
                best(judged.top)[answered][remains], right.units.take(remains), right.chooses[remains]
            )
        half = replace(evidence, right=right, kinds=self.take(best))
        return half.rho, _refused(half.kinds["off_topic"], evidence.rho)


def _refused(questions: ScoredQuestions, rho: float) -> float:
    return float((questions.scores[questions.counted] < np.float32(rho)).mean())


def _quantile(share: float, questions: ScoredQuestions) -> float:
    """Return the normal quantile of a share of the counted questions, finite even if it is 0 or 1."""
    count = len(questions.counted)
    return float(stats.norm.ppf((share * count + 0.5) / (count + 1)))
