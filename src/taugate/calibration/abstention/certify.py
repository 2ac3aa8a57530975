"""The threshold below which a query is refused, with limits on both errors that hold together.

A query is refused where its score is below τ. Two claims are made of one τ: at most a share β of unanswerable queries
is answered, and at most a share γ of answerable ones is refused. As τ rises the first error falls and the second rises,
so that each claim is tested along τ from the end where it is safe: β from above, γ from below, by fixed-sequence
testing (`calibration/risk/bounds.py`). That gives τ_β, above which the first claim holds, and τ_γ, below which the
second does; every τ between them has both.

Certificates of several losses of a cut are one intersection–union test, for which the error need not be divided, as τ
stops at whichever fails first. Here the ends are found one by one and the statement is that both hold, so that it is
wrong where either is: each is tested at half of the error (Bonferroni). That asks nothing of how the two kinds of query
go together, and they often share documents.

Where τ is set by one kind of query, those of the other had no say in it, and the upper confidence limit of their error
at this τ holds as it would for any fixed one. It is exact where the two kinds are drawn independently of each other.
docs/benchmarks/abstention.md counts how often both hold where they are of the same documents.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.calibration.abstention import words
from taugate.calibration.abstention.choose import (
    ChosenScore,
    EncodedCorpus,
    QueryGroup,
    choose_score,
)
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.ranking import AnsweredQueries
from taugate.calibration.risk.certify import CertifiedThreshold, LossLimit, certify, upper_limit
from taugate.calibration.risk.steps import LossSteps
from taugate.calibration.settings.rules import AbstentionRule, ThresholdRule
from taugate.retrieval.policy.abstention import AnswerRule, Signals
from taugate.retrieval.release.records import AbstentionRecord, ErrorLimit, ScoreCandidate, TradeOff
from taugate.retrieval.vectors.similarity import Float32

# Shares of answerable queries refused for which the report says what can be certified of the other error.
_REFUSED = (0.01, 0.02, 0.05, 0.10, 0.20, 0.30, 0.50)


@dataclass(frozen=True)
class CertifyingScores:
    """Scores of the queries of one kind that certify.

    Attributes:
        scores: (q,) float32.
        units: What counts as one draw among the q queries.
    """

    scores: Float32
    units: SamplingUnits


@dataclass(frozen=True)
class AnsweringErrors:
    """Both errors as functions of τ.

    Attributes:
        refused: Share of answerable queries refused, which rises with τ.
        answered: Share of unanswerable queries answered, which rises with −τ.
        confidence: Of each error by itself.
    """

    refused: LossSteps
    answered: LossSteps
    confidence: float

    @classmethod
    def from_scores(cls, answerable: CertifyingScores, unanswerable: CertifyingScores, confidence: float) -> Self:
        """Build both staircases.

        Args:
            answerable: The queries of each kind that certify.
            unanswerable: The queries of each kind that certify.
            confidence: Of each error by itself.
        """
        return cls(
            LossSteps.of_empty(answerable.scores[:, None], answerable.units),
            LossSteps.of_empty(-unanswerable.scores[:, None], unanswerable.units),
            confidence,
        )

    def refusing(self, most: float) -> CertifiedThreshold:
        """Certify the largest τ at which at most a share `most` of answerable queries is refused."""
        return certify([LossLimit("refused", self.refused, most)], self._rule(most))

    def answering(self, most: float) -> CertifiedThreshold:
        """Certify the smallest τ at which at most a share `most` of unanswerable queries is answered."""
        found = certify([LossLimit("answered", self.answered, most)], self._rule(most))
        return found if found.tau is None else CertifiedThreshold(_turned(found.tau), found.certificates)

    def most_refused(self, tau: float) -> float:
        """Return the upper limit of the share of answerable queries refused at `tau`."""
        return upper_limit(self.refused, tau, self.confidence)

    def most_answered(self, tau: float) -> float:
        """Return the upper limit of the share of unanswerable queries answered at `tau`."""
        return upper_limit(self.answered, _turned(tau), self.confidence)

    def _rule(self, most: float) -> ThresholdRule:
        return ThresholdRule("risk-control", "similarity", max_loss=most, confidence=self.confidence)


def certify_both(
    rule: AbstentionRule,
    answerable: CertifyingScores,
    unanswerable: CertifyingScores,
    score: str,
    candidates: list[ScoreCandidate],
) -> AbstentionRecord:
    """Certify one τ for both errors, and write down what is known of it.

    Of every τ that has both limits it is the one that refuses the fewest answerable queries. Where there is none, it is
    the largest at which refusals are certified; where not even these can be, the largest at which none of the
    certifying queries is refused.

    Args:
        rule: Both limits, and the confidence of the two together.
        answerable: The queries of each kind that certify.
        unanswerable: The queries of each kind that certify.
        score: Name of the score.
        candidates: Scores that it was chosen from.
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
        upper=rule.max_answered if certified else errors.most_answered(tau),
        found=float((unanswerable.scores >= np.float32(tau)).mean()),
        queries=len(unanswerable.scores),
        queries_needed=answering.certificates[0].queries_needed,
        evidence=unanswerable.units.record,
    )
    refused = ErrorLimit(
        asked=rule.max_empty,
        upper=rule.refusal_limit if at_limit else errors.most_refused(tau),
        found=float((answerable.scores < np.float32(tau)).mean()),
        queries=len(answerable.scores),
        queries_needed=None if rule.max_empty is None else refusing.certificates[0].queries_needed,
        evidence=answerable.units.record,
    )
    return AbstentionRecord(
        score=score,
        tau=tau,
        certified=certified,
        answered_unanswerable=answered,
        empty_answerable=refused,
        confidence=rule.confidence,
        guarantee=words.guarantee(answered, refused, rule.confidence, certified=certified),
        least_empty=None if lowest is None else errors.most_refused(lowest),
        candidates=candidates,
        tradeoff=_tradeoff(errors),
    )


def _tradeoff(errors: AnsweringErrors) -> list[TradeOff]:
    """Certify the other error at each share of refusals that can be certified at all."""
    found = ((most, errors.refusing(most).tau) for most in _REFUSED)
    return [TradeOff(empty=most, answered=errors.most_answered(tau)) for most, tau in found if tau is not None]


def _turned(tau: float) -> float:
    """Return the same threshold seen from the other side: score ≥ τ is −score < this, and back; both in float32."""
    return float(np.nextafter(np.float32(-tau), np.float32(np.inf)))


@dataclass(frozen=True)
class CertifiedAbstention:
    """An abstention policy with the scores of all queries.

    Attributes:
        chosen: The score, and what it gives to every query.
        record: What the manifest says of the policy.
    """

    chosen: ChosenScore
    record: AbstentionRecord

    @property
    def rule(self) -> AnswerRule:
        """Score and threshold, as they are served."""
        return AnswerRule(self.chosen.score, self.record.tau)

    @property
    def answering(self) -> AnsweredQueries:
        """Scores of the queries of both kinds, with the threshold that answers them."""
        return AnsweredQueries(self.chosen.answerable, self.chosen.unanswerable, np.float32(self.record.tau))


def abstain(
    rule: AbstentionRule,
    answerable: QueryGroup,
    unanswerable: QueryGroup,
    corpus: EncodedCorpus,
    calibration: NDArray[np.int64],
    seed: int,
) -> CertifiedAbstention:
    """Choose the score by which queries are refused, and certify its threshold.

    Args:
        rule: Both limits.
        answerable: All queries of each kind.
        unanswerable: All queries of each kind.
        corpus: The documents.
        calibration: Positions of the answerable queries that may have a say.
        seed: Of the calibration.
    """
    chosen = choose_score(answerable, unanswerable, corpus, calibration, rule.refusal_limit, seed)
    return CertifiedAbstention(
        chosen,
        certify_both(
            rule,
            _certifying(chosen.answerable, answerable, chosen.certify_answerable),
            _certifying(chosen.unanswerable, unanswerable, chosen.certify_unanswerable),
            chosen.score.name,
            [
                ScoreCandidate(
                    name=each.name, auroc=each.auroc, answered=each.answered, standard_error=each.standard_error
                )
                for each in chosen.candidates
            ],
        ),
    )


def keep_abstention(
    rule: AnswerRule,
    record: AbstentionRecord,
    answerable: QueryGroup,
    unanswerable: QueryGroup,
    corpus: EncodedCorpus,
) -> CertifiedAbstention:
    """Score queries by a rule that was chosen and certified before, on other documents or on these.

    The score's model and its threshold stay; the terms and vectors of the documents, which its signals need, are those
    of this corpus.

    Args:
        rule: Score and threshold.
        record: Of the release that the rule comes from, which stays.
        answerable: All queries of each kind.
        unanswerable: All queries of each kind.
        corpus: The documents.
    """
    with threadpool_limits(limits=1):
        signals = Signals.of(rule.score.signals.k, corpus.vectors, corpus.texts).needed(rule.score.name)
        score = replace(rule.score, signals=signals)
        scores = [
            score.of(side.texts, side.vectors, side.top) if len(side.labels) else np.empty(0, dtype=np.float32)
            for side in (answerable, unanswerable)
        ]
    chosen = ChosenScore(
        score,
        scores[0],
        scores[1],
        np.arange(len(scores[0])),
        np.arange(len(scores[1])),
        [],
        {score.name: (scores[0], scores[1])},
    )
    return CertifiedAbstention(chosen, record)


def _certifying(scores: NDArray[np.float32], side: QueryGroup, rows: NDArray[np.int64]) -> CertifyingScores:
    """Take the scores of queries that had no say, with the clusters of all queries of their kind."""
    return CertifyingScores(scores[rows], SamplingUnits.from_labels(side.labels).take(rows))
