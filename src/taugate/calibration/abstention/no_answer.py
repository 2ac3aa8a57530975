"""Measures how many queries without an answer get a result: labelled ones, or questions from another field."""

from typing import Literal

import numpy as np

from taugate.calibration.abstention.certify import CertifiedAbstention
from taugate.calibration.abstention.refusal import share_at_most
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.ranking import ScoredQueries
from taugate.calibration.relevance.unanswered import UnansweredQuestions
from taugate.retrieval.policy.policy import POLICIES, Mask, keep
from taugate.retrieval.release.outcome_records import PolicyRecord
from taugate.retrieval.release.records import NoAnswerRecord
from taugate.retrieval.vectors.similarity import Float32


def answered_unanswerable(
    scored: ScoredQueries, policy: PolicyRecord, units: SamplingUnits, abstention: CertifiedAbstention | None
) -> NoAnswerRecord:
    """Measure how many labelled unanswerable queries get a result, among those that did not choose a score.

    If an abstention policy was certified on these queries, its certified limit is the upper limit.

    Args:
        scored: All queries with their results.
        policy: Policy in force.
        units: Sampling units of all unanswerable queries.
        abstention: None if no query is refused as a whole.
    """
    tau = None if policy.tau is None else np.float32(policy.tau)
    answered: Mask = np.any(scored.unanswerable_kept(policy.kind, tau), axis=1)
    if abstention is None:
        return _record("unanswerable", answered, units)
    rows = abstention.chosen.certify_unanswerable
    record = _record("unanswerable", answered[rows], units.take(rows))
    certified = abstention.record.answered_unanswerable.upper
    if not abstention.record.certified or record.answered > certified:  # kept from an earlier release
        return record
    return record.model_copy(update={"upper": certified})


def answered_off_topic(
    questions: UnansweredQuestions, relevance: Float32 | None, policy: PolicyRecord
) -> NoAnswerRecord:
    """Measure how many questions from another field get a result; they are searched and cut as any query is.

    Args:
        questions: The questions with their results.
        relevance: (o, K) float32 relevance of the results; None without a model.
        policy: Policy in force.
    """
    decisions = POLICIES[policy.kind].decide(questions.top.scores, relevance)
    kept = keep(decisions, None if policy.tau is None else np.float32(policy.tau))
    answered: Mask = np.any(kept, axis=1)
    return _record("off_topic", answered, SamplingUnits.from_clusters(questions.clusters))


def _record(kind: Literal["unanswerable", "off_topic"], answered: Mask, units: SamplingUnits) -> NoAnswerRecord:
    return NoAnswerRecord(
        asked=kind,
        queries=len(answered),
        answered=float(answered.mean()),
        upper=share_at_most(answered, units),
        evidence=units.record,
    )
