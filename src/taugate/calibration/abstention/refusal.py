"""The default refusal: ρ, a threshold of the best similarity below which a query as a whole gets no result.

ρ refuses as many questions without an answer as it can while few right answers are lost. It is the lowest threshold
that is about as good as the best one: if no score lies between the two kinds of query, ρ is at the lower end of the
gap, because real queries score lower than labelled ones more often than higher.

No query that certifies a loss chooses ρ. Given the questions that choose it, ρ is a constant, and the loss of a query,
1 if it is refused or the cut drops all of its relevant results, is a function of τ alone that never falls as τ rises.
So the tests of `calibration/risk` hold for the sum of both losses as they do for the cut (`ScoredQueries.certifying`).
With few labelled queries all calibration queries certify, off-topic questions alone choose ρ, and held-out queries only
keep it from using up the loss.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from taugate.calibration.abstention.probes import Probes
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.ranking import AnsweredQueries
from taugate.calibration.risk.certify import upper_limit
from taugate.calibration.risk.steps import LossSteps
from taugate.calibration.settings.rules import CONFIDENCE, ThresholdRule
from taugate.retrieval.policy.abstention import AnswerRule, AnswerScore, Signals
from taugate.retrieval.policy.policy import Mask
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.records import RefusalRecord, RefusedQuestions
from taugate.retrieval.vectors.similarity import Float32

# Largest share of the right answers that the default ρ may lose: one query in seventy.
MAX_LOST = 0.015
# Part of a certified loss that ρ may use; the cut needs the remainder (docs/benchmarks/abstention.md).
_SHARE_OF_LOSS = 1 / 8
# A lower ρ is taken if it refuses at most this much less than the best one. A share of the 166 off-topic questions that
# choose is known to about as much (1.96 · √(.95 · .05 / 166) = .033), and the last questions of each kind cost the most
# right answers (docs/benchmarks/abstention.md).
_TOLERANCE = 0.04


@dataclass(frozen=True)
class DefaultRefusal:
    """ρ with the scores of all labelled queries.

    Attributes:
        rule: Score and threshold for serving.
        record: Record in the manifest.
        answering: Scores of the labelled queries, with ρ.
    """

    rule: AnswerRule
    record: RefusalRecord
    answering: AnsweredQueries


@dataclass(frozen=True)
class RightAnswers:
    """Answerable queries that find a relevant document in their top K.

    Attributes:
        scores: (n,) float32, their best similarities.
        units: Sampling units of the n queries.
    """

    scores: Float32
    units: SamplingUnits

    @classmethod
    def of(cls, scores: Float32, found: Mask, part: Mask, units: SamplingUnits) -> Self:
        """Take the queries of a part that find their answer.

        Args:
            scores: (q,) float32 scores of all answerable queries.
            found: (q,) whether the query finds its answer.
            part: (q,) whether the query is in the part.
            units: Sampling units of all answerable queries.
        """
        rows = np.flatnonzero(found & part)
        return cls(scores[rows], units.take(rows))


@dataclass(frozen=True)
class ProbedKinds:
    """Questions of each kind that no document answers; None if there are none.

    Attributes:
        off_topic: Questions about other subjects.
        near_miss: Near misses.
        unanswerable: The user's unanswerable queries.
        left_out: Number of off-topic questions that the documents seem to answer, which are not in `off_topic`.
    """

    off_topic: Probes
    near_miss: Probes | None
    unanswerable: Probes | None
    left_out: int

    def choosing(self, *, alone: bool) -> list[Float32]:
        """Return the scores that choose ρ, one array per kind; only off-topic ones if `alone`."""
        kinds = [self.off_topic] if alone else [self.off_topic, self.near_miss, self.unanswerable]
        return [kind.choosing for kind in kinds if kind is not None and len(kind.choosing)]


def lost_share(rule: ThresholdRule, *, chosen: bool) -> float:
    """Return the largest share of the right answers that ρ may lose under a rule.

    Args:
        rule: Rule of the threshold.
        chosen: Whether labelled queries choose ρ; if a loss is certified and none does, ρ may not use it up.
    """
    if rule.statement is None:
        return MAX_LOST
    return min(MAX_LOST, _SHARE_OF_LOSS * rule.max_loss) if chosen else rule.max_loss


def can_limit(share: float, queries: int) -> bool:
    """Return whether a share of right answers lost can be limited with so many queries: 1 / (n + 1) ≤ share."""
    return share * (queries + 1) >= 1


def choose_rho(right: Float32, kinds: list[Float32], limit: float) -> float:
    """Return the lowest ρ that refuses about as much as the highest ρ that loses few right answers.

    Args:
        right: (n,) float32 scores of right answers.
        kinds: Scores of the questions without an answer, one array per kind; kinds count equally.
        limit: Largest share of right answers lost.
    """
    ceiling = _ceiling(right, limit)
    scores = np.unique(np.concatenate(kinds))
    above = np.nextafter(scores, np.float32(np.inf))  # the lowest thresholds that refuse each score
    highest = np.array([min(ceiling, float(above[-1]))], dtype=np.float32)
    candidates = np.concatenate([above[above <= ceiling], highest])
    refused = np.mean([np.searchsorted(np.sort(kind), candidates, side="left") / len(kind) for kind in kinds], axis=0)
    enough = refused[-1] - _TOLERANCE
    if len(kinds) == 1:  # the share to reach is that of all off-topic questions, if the ceiling allows it
        enough = min(float(refused[-1]), 1 - _TOLERANCE)
    return float(candidates[int(np.argmax(refused >= enough))])


def _ceiling(right: Float32, limit: float) -> float:
    """Return the highest threshold that loses at most a share of right answers, on average over such samples.

    With k losses among n, the next query is lost with probability (k + 1) / (n + 1) at most (conformal risk control,
    Angelopoulos et al., ICLR 2024, eq. 4). If n is too small for that, it is the quantile of a normal distribution.
    """
    if len(right) < 2:
        return float(np.inf)
    allowed = int(np.floor(limit * (len(right) + 1) + 1e-9)) - 1
    if allowed >= 0:
        return float(np.sort(right)[allowed])
    tail = right.mean(dtype=np.float64) + stats.norm.ppf(limit) * right.std(dtype=np.float64)
    return float(np.float32(tail))


def refusal_record(rho: float, right: RightAnswers, kinds: ProbedKinds, *, provisional: bool) -> RefusalRecord:
    """Record how many questions of each kind ρ refuses, and how many right answers, among those that report.

    Args:
        rho: The threshold.
        right: Right answers to report.
        kinds: Questions without an answer.
        provisional: Whether ρ comes from off-topic questions alone.
    """
    refused = right.scores < np.float32(rho)
    lost = Interval(mean=0.0, lower=0.0, upper=1.0)
    if len(refused):
        lost = Interval(
            mean=float(refused.mean()),
            lower=1 - share_at_most(~refused, right.units),
            upper=share_at_most(refused, right.units),
        )
    return RefusalRecord(
        score="best_similarity",
        rho=rho,
        provisional=provisional,
        off_topic=_refused(kinds.off_topic, rho),
        near_miss=_refused(kinds.near_miss, rho) if kinds.near_miss else None,
        unanswerable=_refused(kinds.unanswerable, rho) if kinds.unanswerable else None,
        lost=lost,
        left_out=kinds.left_out,
    )


def answer_rule(rho: float, k: int) -> AnswerRule:
    """Return the rule that serves ρ."""
    return AnswerRule(AnswerScore("best_similarity", Signals(k)), rho)


def share_at_most(happened: Mask, units: SamplingUnits) -> float:
    """Return the one-sided 95 % upper limit of a share.

    Args:
        happened: (n,) bool, n ≥ 1.
        units: Sampling units of the n queries.
    """
    steps = LossSteps.of_empty((~happened).astype(np.float32)[:, None], units)
    return upper_limit(steps, 0.5, CONFIDENCE)


def _refused(probes: Probes, rho: float) -> RefusedQuestions:
    refused: NDArray[np.bool_] = probes.reported < np.float32(rho)
    units = probes.reported_units
    lower = 1 - share_at_most(~refused, units)
    evidence = units.record if units.unit == "document" else None
    return RefusedQuestions(queries=len(refused), refused=int(refused.sum()), lower=lower, evidence=evidence)
