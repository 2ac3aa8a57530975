"""Sets the default refusal of a study: collects the questions that no document answers, chooses ρ and measures it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from taugate.calibration.abstention.refusal import (
    MAX_LOST,
    DefaultRefusal,
    LostShares,
    RefusalEvidence,
    ScoredQuestions,
    can_limit,
)
from taugate.calibration.metrics.measure import QueryPart
from taugate.calibration.metrics.ranking import AnsweredQueries
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.probes import LabelledSearch
from taugate.calibration.relevance.unanswered import UnansweredQuestions
from taugate.calibration.settings.rules import ThresholdRule
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.ingestion.dataset.off_topic import off_topic_table
from taugate.retrieval.policy.abstention import AnswerRule, AnswerScore, Signals
from taugate.retrieval.policy.policy import Mask
from taugate.retrieval.release.records import RefusalRecord


@dataclass(frozen=True)
class LabelledParts:
    """The parts that the answerable queries take.

    Attributes:
        limits: (n,) bool, whether the query limits how many right answers ρ loses.
        certifies: (n,) bool, whether the query may certify a loss, so that ρ must not depend on it.
    """

    limits: Mask
    certifies: Mask


def divide(parts: Mapping[str, QueryPart], roles: QueryRoles | None, rule: ThresholdRule) -> LabelledParts:
    """Decide which answerable queries limit ρ: calibration queries, or held-out ones if those certify a loss.

    Without held-out queries, those that fit the model of relevance limit ρ and certify nothing.

    Args:
        parts: "calibration" and, with a holdout, "heldout".
        roles: None with too few queries.
        rule: Rule of the threshold.
    """
    members = parts["calibration"].members
    limits, certifies = (np.zeros(sum(len(part.members) for part in parts.values()), dtype=np.bool_) for _ in range(2))
    if rule.statement is None:
        limits[members] = True
    else:
        limits[parts["heldout"].members if "heldout" in parts else roles.fit if roles else members[:0]] = True
        certifies[members] = ~limits[members]
    return LabelledParts(limits, certifies)


def refuse_by_default(
    search: LabelledSearch,
    parts: LabelledParts,
    roles: QueryRoles | None,
    settings: CalibrationSettings,
    kept: RefusalRecord | None,
) -> DefaultRefusal | None:
    """Choose ρ, or keep that of an earlier release, and measure what it refuses.

    None if the documents seem to answer all questions about other subjects.

    Args:
        search: The searched data set.
        parts: Parts of the answerable queries.
        roles: None with too few queries.
        settings: All settings, among them the rule of the threshold, and ρ if it is given.
        kept: Record of the earlier release; None to choose ρ.
    """
    # Generated queries resemble their documents more than people's queries do, so ρ could lose many of the latter.
    rule, rho = settings.rule, settings.rho if kept is None else kept.rho
    generated = any(query.origin in {"crop", "llm"} for query in search.dataset.answerable)
    provisional = generated or not can_limit(MAX_LOST, len(search.units)) if kept is None else kept.provisional
    evidence = _evidence(search, parts, rule, rho, provisional=provisional)
    if evidence is None:
        return None
    fitted = roles is not None and bool(parts.certifies.any() and parts.limits[roles.fit].all())
    answering = AnsweredQueries(
        search.judged.top.scores[:, 0],
        search.unanswerable.scores[:, 0],
        np.float32(evidence.rho),
        certified=True,
        fitted=fitted,
    )
    rule_served = AnswerRule(AnswerScore("best_similarity", Signals(search.judged.top.scores.shape[1])), evidence.rho)
    return DefaultRefusal(rule_served, evidence.record(provisional=provisional), answering)


def _evidence(
    search: LabelledSearch, parts: LabelledParts, rule: ThresholdRule, kept: float | None, *, provisional: bool
) -> RefusalEvidence | None:
    """Score the questions of every kind; None without a question about other subjects."""
    scores, found = search.judged.top.scores[:, 0], np.flatnonzero(search.judged.accuracy() > 0)
    spoken = search.off_topic_remaining(scores[:0], any_language=False)
    remains = search.off_topic_remaining(scores[found][parts.limits[found]], any_language=False)
    requests = np.array([question.is_request for question in off_topic_table()])
    off_topic, request = (_all_choose(search.off_topic.take(remains & kind)) for kind in (~requests, requests))
    if off_topic is None:
        return None
    # A few crops, some of two or three words, say too little about people's questions to limit ρ, unless a loss is
    # certified for them.
    limits = parts.limits[found] & (not provisional or rule.statement is not None)
    near = [kind for kind, _ in search.near_misses]
    near_scores = np.concatenate([kind.top.scores[:, 0] for kind in near])
    own, certified = search.own, search.cluster_ids[: len(scores)][parts.certifies]
    return RefusalEvidence(
        right=ScoredQuestions(scores[found], search.units.take(found), limits) if len(found) else None,
        off_topic=off_topic,
        request=request,
        near_miss=ScoredQuestions.of(
            near_scores, np.concatenate([kind.clusters for kind in near]), np.zeros(len(near_scores), dtype=np.bool_)
        ),
        unanswerable=ScoredQuestions.of(own.top.scores[:, 0], own.clusters, ~np.isin(own.clusters, certified)),
        left_out=int((spoken & ~remains).sum()),
        lost=LostShares.under(rule),
        kept=kept,
    )


def _all_choose(questions: UnansweredQuestions) -> ScoredQuestions | None:
    every = np.ones(len(questions), dtype=np.bool_)
    return ScoredQuestions.of(questions.top.scores[:, 0], questions.clusters, every)
