"""The threshold below which a query is refused, with limits on both errors that hold together.

A query is refused if its score is below τ. There are two claims about one τ: at most a share β of unanswerable queries
is answered, and at most a share γ of answerable ones is refused. As τ rises, the first error falls and the second
rises, so each claim is tested from its safe end: β from above, γ from below, by fixed-sequence testing
(`evidence/risk/certify.py`). That gives τ_β, above which the first claim holds, and τ_γ, below which the second
holds; both hold for every τ between them.

Certificates for several losses of a cut are one intersection–union test with an undivided error, because τ stops at the
first failure. Here both ends are tested separately and the statement is that both hold, so each is tested at half of
the error (Bonferroni). This assumes nothing about the dependence of the two kinds of query, which often share
documents.

If queries of one kind set τ, those of the other kind did not influence it, and the upper confidence limit of their
error at this τ holds as for a fixed τ. It is exact if the two kinds are drawn independently of each other.
benchmarks/results/abstention.md counts how often both limits hold if they are of the same documents.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.evidence.abstention import words
from taugate.evidence.abstention.choose import LabelledGroups, choose_score
from taugate.evidence.abstention.refusal import StudiedRefusal
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.ranking import AnsweredQueries
from taugate.evidence.risk.certify import CertifiedThreshold, LossLimit, certify, upper_loss_limit
from taugate.evidence.risk.steps import LossSteps
from taugate.evidence.rules import AbstentionRule, ThresholdRule
from taugate.policy.abstention import AnswerRule, ScoreName
from taugate.policy.arrays import Float32
from taugate.release.refusal_records import ErrorLimit, RefusalRecord, RequestedLimits, ScoreCandidate, TradeOff

# Shares of answerable queries refused at which the report gives the certified limit of the other error.
_REFUSED = (0.01, 0.02, 0.05, 0.10, 0.20, 0.30, 0.50)


@dataclass(frozen=True)
class CertifyingScores:
    """Scores of the certifying queries of one kind."""

    scores: Float32  # (q,)
    units: SamplingUnits


@dataclass(frozen=True)
class AnsweringErrors:
    """Both errors as functions of τ."""

    refused: LossSteps  # share of answerable queries refused, which rises with τ
    answered: LossSteps  # share of unanswerable queries answered, which rises with −τ
    confidence: float  # confidence of each limit by itself

    @classmethod
    def from_scores(cls, answerable: CertifyingScores, unanswerable: CertifyingScores, confidence: float) -> Self:
        """Build both staircases.

        The confidence is that of each limit by itself.
        """
        return cls(
            LossSteps.of_empty(answerable.scores[:, None], answerable.units),
            LossSteps.of_empty(-unanswerable.scores[:, None], unanswerable.units),
            confidence,
        )

    def refusing(self, limit: float) -> CertifiedThreshold:
        """Certify the largest τ at which at most a share `limit` of answerable queries is refused."""
        return certify([LossLimit("refused", self.refused, limit)], self._rule(limit))

    def answering(self, limit: float) -> CertifiedThreshold:
        """Certify the smallest τ at which at most a share `limit` of unanswerable queries is answered."""
        certified = certify([LossLimit("answered", self.answered, limit)], self._rule(limit))
        if certified.tau is None:
            return certified
        return CertifiedThreshold(_mirrored(certified.tau), certified.certificates)

    def max_refused(self, tau: float, requested: float | None = None) -> float:
        """Return the upper limit of the share of answerable queries refused at `tau`; see `upper_limit`."""
        return upper_loss_limit(self.refused, tau, self.confidence, requested or 1.0)

    def max_answered(self, tau: float, requested: float | None = None) -> float:
        """Return the upper limit of the share of unanswerable queries answered at `tau`; see `upper_limit`."""
        return upper_loss_limit(self.answered, _mirrored(tau), self.confidence, requested or 1.0)

    def _rule(self, limit: float) -> ThresholdRule:
        return ThresholdRule("risk-control", "similarity", max_loss=limit, confidence=self.confidence)


def certify_both(
    rule: AbstentionRule,
    answerable: CertifyingScores,
    unanswerable: CertifyingScores,
    score: str,
    candidates: list[ScoreCandidate],
) -> RefusalRecord:
    """Certify one τ for both errors, and record the evidence.

    It is the τ with both limits that refuses the fewest answerable queries. If there is none, it is the largest τ at
    which refusals are certified. If these cannot be certified either, it is the largest τ at which no certifying query
    is refused.
    """
    errors = AnsweringErrors.from_scores(answerable, unanswerable, rule.confidence_per_limit)
    refusing, answering = errors.refusing(rule.refusal_limit), errors.answering(rule.max_answered)
    lowest = answering.tau
    highest = float(answerable.scores.min()) if refusing.tau is None else refusing.tau
    certified = lowest is not None and (rule.max_empty is None or (refusing.tau is not None and lowest <= highest))
    tau = lowest if certified and lowest is not None else highest
    at_limit = not certified and refusing.tau is not None
    answered = ErrorLimit(
        asked=rule.max_answered,
        upper=rule.max_answered if certified else errors.max_answered(tau),
        found=float((unanswerable.scores >= np.float32(tau)).mean()),
        queries=len(unanswerable.scores),
        queries_needed=answering.certificates[0].queries_needed,
        evidence=unanswerable.units.record,
    )
    refused = ErrorLimit(
        asked=rule.max_empty,
        upper=rule.refusal_limit if at_limit else errors.max_refused(tau),
        found=float((answerable.scores < np.float32(tau)).mean()),
        queries=len(answerable.scores),
        queries_needed=None if rule.max_empty is None else refusing.certificates[0].queries_needed,
        evidence=answerable.units.record,
    )
    limits = RequestedLimits(
        answered=answered,
        refused=refused,
        confidence=rule.confidence,
        guarantee=words.limits_guarantee(answered, refused, rule.confidence, certified=certified),
        least_empty=None if lowest is None else errors.max_refused(lowest),
        candidates=candidates,
        tradeoff=_tradeoff(errors),
    )
    return RefusalRecord(score=score, rho=tau, certified=certified, limits=limits)


def _tradeoff(errors: AnsweringErrors) -> list[TradeOff]:
    """Certify the share of answered queries at each certifiable share of refusals."""
    thresholds = ((share, errors.refusing(share).tau) for share in _REFUSED)
    return [TradeOff(empty=share, answered=errors.max_answered(tau)) for share, tau in thresholds if tau is not None]


def _mirrored(tau: float) -> float:
    """Return the threshold of the negated score in float32, so that score ≥ τ if and only if −score < threshold."""
    return float(np.nextafter(np.float32(-tau), np.float32(np.inf)))


def refuse_within_limits(rule: AbstentionRule, groups: LabelledGroups) -> StudiedRefusal:
    """Choose the score by which queries are refused, and certify its threshold."""
    chosen = choose_score(groups, rule.refusal_limit)
    rows = groups.division.certify
    record = certify_both(
        rule,
        _certifying(chosen.answerable, groups.answerable.clusters, rows[0]),
        _certifying(chosen.unanswerable, groups.unanswerable.clusters, rows[1]),
        chosen.score.name,
        chosen.candidates,
    )
    return _refusal(AnswerRule(chosen.score, float(record.rho or 0)), record, groups, chosen.curves)


def keep_refusal(kept: tuple[AnswerRule, RefusalRecord], groups: LabelledGroups) -> StudiedRefusal:
    """Score queries by a rule that was chosen and certified earlier, possibly on other documents.

    The score's model and its threshold do not change; the terms and vectors for its signals are those of this corpus.
    The queries that would learn the score certify nothing.
    """
    rule, record = kept
    with threadpool_limits(limits=1):
        score = rule.score
        if groups.corpus is not None:
            score = replace(score, signals=groups.corpus.signals(score.signals.k).needed(score.name))
        scores = tuple(
            score.of(group.texts, group.vectors, group.top, group.components)
            if len(group.clusters)
            else np.empty(0, dtype=np.float32)
            for group in (groups.answerable, groups.unanswerable)
        )
    return _refusal(replace(rule, score=score), record, groups, {score.name: (scores[0], scores[1])})


def limits_again(kept: StudiedRefusal, clusters: NDArray[np.int64]) -> tuple[ErrorLimit | None, ErrorLimit | None]:
    """Measure both errors of a kept rule again, by the queries that would certify it now; None without any of a kind.

    Returns the limits of unanswerable queries answered, and of answerable ones refused. `clusters` are those of the
    answerable queries, then of the unanswerable ones.
    """
    limits, rows, scores = kept.record.limits, kept.certifying, kept.answering
    if limits is None or rows is None or not all(map(len, rows)):
        return None, None
    count = len(scores.answerable)
    answerable = _certifying(scores.answerable, clusters[:count], rows[0])
    unanswerable = _certifying(scores.unanswerable, clusters[count:], rows[1])
    errors = AnsweringErrors.from_scores(answerable, unanswerable, 1 - (1 - limits.confidence) / 2)
    answered, refused, rho = limits.answered, limits.refused, kept.rule.tau

    def again(limit: ErrorLimit, upper: float, errors: NDArray[np.bool_]) -> ErrorLimit:
        return limit.model_copy(update={"upper": upper, "found": float(errors.mean()), "queries": len(errors)})

    return (
        again(answered, errors.max_answered(rho, answered.asked), unanswerable.scores >= np.float32(rho)),
        again(refused, errors.max_refused(rho, refused.asked), answerable.scores < np.float32(rho)),
    )


def _certifying(scores: Float32, clusters: NDArray[np.int64], rows: NDArray[np.int64]) -> CertifyingScores:
    """Take the scores of the certifying queries, with the design effect of all queries of their kind."""
    return CertifyingScores(scores[rows], SamplingUnits.from_clusters(clusters).take(rows))


def _refusal(
    rule: AnswerRule, record: RefusalRecord, groups: LabelledGroups, curves: Mapping[ScoreName, tuple[Float32, Float32]]
) -> StudiedRefusal:
    """Combine a rule with the scores of all queries, `curves` by the names of scores, that in force first."""
    in_force = next(iter(curves.values()))
    answering = AnsweredQueries(*in_force, np.float32(rule.tau))
    return StudiedRefusal(rule, record, answering, groups.division.certify, curves)
