"""Counts the queries without an answer that get a result: labelled ones, or questions from another field."""

import numpy as np

from taugate.calibration.abstention.refusal import StudiedRefusal, count_refused
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.ranking import ScoredQueries
from taugate.calibration.relevance.unanswered import UnansweredQuestions
from taugate.retrieval.policy.policy import POLICIES, Mask, keep
from taugate.retrieval.release.outcome_records import PolicyRecord
from taugate.retrieval.release.refusal_records import RefusedQuestions
from taugate.retrieval.vectors.similarity import Float32


def refused_unanswerable(
    scored: ScoredQueries, policy: PolicyRecord, units: SamplingUnits, refusal: StudiedRefusal | None
) -> RefusedQuestions:
    """Count the labelled unanswerable queries without a result, among those that did not choose a score.

    If limits were certified on these queries, the certified limit is that of the share.

    Args:
        scored: All queries with their results.
        policy: Policy in force.
        units: Sampling units of all unanswerable queries.
        refusal: What refuses queries as a whole, within limits; None if nothing does.
    """
    empty: Mask = ~np.any(scored.unanswerable_kept(policy.kind, policy.threshold), axis=1)
    if refusal is None or refusal.certifying is None or refusal.record.limits is None:
        return count_refused(empty, units)
    rows, certified = refusal.certifying[1], refusal.record.limits.answered.upper
    counted = count_refused(empty[rows], units.take(rows))
    # A rule that is kept from an earlier release may answer more than was certified there.
    if not refusal.record.certified or counted.answered > certified:
        return counted
    return counted.model_copy(update={"lower": 1 - certified})


def refused_off_topic(
    questions: UnansweredQuestions, relevance: Float32 | None, policy: PolicyRecord
) -> RefusedQuestions:
    """Count the questions from another field without a result; they are searched and cut as any query is.

    Args:
        questions: The questions with their results.
        relevance: (o, K) float32 relevance of the results; None without a model.
        policy: Policy in force.
    """
    kept = keep(POLICIES[policy.kind].decide(questions.top.scores, relevance), policy.threshold)
    empty: Mask = ~np.any(kept, axis=1)
    return count_refused(empty, SamplingUnits.from_clusters(questions.clusters))
