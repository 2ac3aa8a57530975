"""The default refusal: ρ, a threshold of the best similarity below which a query as a whole gets no result.

ρ refuses nearly all questions about other subjects, and as many of the user's unanswerable queries as it can, while few
right answers are lost. It is the lowest threshold that does so, because users' queries score lower than labelled ones
more often than higher.

No query that certifies a loss influences ρ: held-out queries limit it then. Given these, ρ is a constant, and the loss
of a query, 1 if it is refused or the cut drops all of its relevant results, is a function of τ alone that never falls
as τ rises. So the tests of `calibration/risk` hold for the sum of both losses as they do for the cut
(`ScoredQueries.certifying`).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
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
# Part of a certified loss that ρ may use; the cut needs the remainder. With --max-loss 0.02 on squad_v2_dev, an eighth
# raises the share of results kept from .730 to .738.
_SHARE_OF_LOSS = 1 / 8
# Share of each kind of question that may remain: the last few cost the most right answers. On the sample, .1 loses .7 %
# of them and .03 loses 1.2 %; on a folder of 27 documents with 34 questions of people, 0 and 6 %.
_REMAINING = 0.1


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

    def choosing(self, right: Float32, lost: "LostShares") -> list[Float32]:
        """Return scores that choose ρ, one array per kind; all off-topic questions, because one language has few.

        Unanswerable queries score like answerable ones, and can raise ρ to its limit. With too few right answers to
        limit what that loses, off-topic questions choose alone.

        Args:
            right: (n,) float32 scores of right answers that limit ρ.
            lost: Shares of right answers that may be lost.
        """
        unanswerable = self.unanswerable if can_limit(lost.planned, len(right)) else None
        kinds = [self.off_topic.scores] if unanswerable is None else [self.off_topic.scores, unanswerable.choosing]
        return [scores for scores in kinds if len(scores)]


@dataclass(frozen=True)
class LostShares:
    """Shares of right answers that ρ may lose.

    Attributes:
        planned: Largest share that it may lose.
        one: Share that a single lost answer may be, if there are too few to limit a share of `planned`.
    """

    planned: float
    one: float

    @classmethod
    def under(cls, rule: ThresholdRule) -> Self:
        """Return the shares under a rule: a certified loss covers what ρ loses."""
        if rule.statement is None:
            return cls(MAX_LOST, MAX_LOST)
        return cls(min(MAX_LOST, _SHARE_OF_LOSS * rule.max_loss), rule.max_loss)


def can_limit(share: float, queries: int) -> bool:
    """Return whether a share of right answers lost can be limited with so many queries: 1 / (n + 1) ≤ share."""
    return share * (queries + 1) >= 1


def choose_rho(right: Float32, kinds: list[Float32], lost: LostShares) -> float:
    """Return the lowest ρ that refuses nearly all questions of each kind, or the highest that loses few right answers.

    Args:
        right: (n,) float32 scores of right answers.
        kinds: Scores of the questions without an answer, one array per kind.
        lost: Shares of right answers that may be lost.
    """
    above = [np.nextafter(np.sort(kind), np.float32(np.inf)) for kind in kinds]  # the lowest thresholds that refuse
    enough = [float(scores[int(np.ceil((1 - _REMAINING) * len(scores))) - 1]) for scores in above]
    return min(max(enough), _ceiling(right, lost))


def _ceiling(right: Float32, lost: LostShares) -> float:
    """Return the highest threshold that loses at most a share of right answers, on average over such samples.

    With k losses among n, the next query is lost with probability (k + 1) / (n + 1) at most (conformal risk control,
    Angelopoulos et al., ICLR 2024, eq. 4). If n is too small for that, it is the quantile of a normal distribution.
    """
    if len(right) < 2:
        return float(np.inf)
    planned, one = (int(np.floor(share * (len(right) + 1) + 1e-9)) - 1 for share in (lost.planned, lost.one))
    allowed = max(planned, min(one, 1))
    if allowed >= 0:
        return float(np.sort(right)[allowed])
    tail = right.mean(dtype=np.float64) + stats.norm.ppf(lost.planned) * right.std(dtype=np.float64)
    return float(np.float32(tail))


def off_topic_refused(right: Float32, kinds: ProbedKinds, lost: LostShares) -> RefusedQuestions:
    """Count the off-topic questions that are refused by the ρ that all others choose; see `choose_rho`."""
    scores, *others = kinds.choosing(right, lost)
    refused: Mask = np.zeros(len(scores), dtype=np.bool_)
    for row in range(len(scores) if len(scores) > 1 else 0):
        refused[row] = scores[row] < np.float32(choose_rho(right, [np.delete(scores, row), *others], lost))
    return _count(refused, SamplingUnits.from_clusters(kinds.off_topic.clusters))


def refusal_record(
    rho: float,
    right: RightAnswers,
    kinds: ProbedKinds,
    off_topic: RefusedQuestions | None = None,
    *,
    provisional: bool,
) -> RefusalRecord:
    """Record how many questions of each kind ρ refuses, and how many right answers, among those that report.

    Args:
        rho: The threshold.
        right: Right answers to report.
        kinds: Questions without an answer.
        off_topic: Off-topic questions refused; None to count those that ρ refuses.
        provisional: Whether labelled queries are too few, or generated, to limit the share of lost answers.
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
        off_topic=off_topic or _refused(kinds.off_topic, rho),
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
    return _count(probes.reported < np.float32(rho), probes.reported_units)


def _count(refused: Mask, units: SamplingUnits) -> RefusedQuestions:
    lower = 1 - share_at_most(~refused, units)
    evidence = units.record if units.unit == "document" else None
    return RefusedQuestions(queries=len(refused), refused=int(refused.sum()), lower=lower, evidence=evidence)
