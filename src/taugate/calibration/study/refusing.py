"""Sets the default refusal of a study: collects the questions that no document answers, chooses ρ and measures it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taugate.calibration.abstention.probes import LabelledParts, Probes, off_topic_probes, removed_documents
from taugate.calibration.abstention.refusal import (
    MAX_LOST,
    DefaultRefusal,
    LostShares,
    ProbedKinds,
    RightAnswers,
    answer_rule,
    can_limit,
    choose_rho,
    off_topic_refused,
    refusal_record,
)
from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.metrics.clusters import ClusterIds, SamplingUnits
from taugate.calibration.metrics.measure import QueryPart
from taugate.calibration.metrics.ranking import AnsweredQueries, JudgedQueries
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.settings.rules import ThresholdRule
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.index.top_k import Index, TopK
from taugate.retrieval.policy.policy import Mask
from taugate.retrieval.release.records import RefusalRecord


@dataclass(frozen=True)
class LabelledSearch:
    """A data set after its labelled queries were searched.

    Attributes:
        dataset: Labelled queries and documents.
        encoded: Vectors of the data set.
        index: Index of the documents.
        judged: Results of the answerable queries.
        unanswerable: Results of the unanswerable queries.
        units: Sampling units of the answerable queries.
    """

    dataset: Dataset
    encoded: EncodedTexts
    index: Index
    judged: JudgedQueries
    unanswerable: TopK
    units: SamplingUnits


def divide(
    parts: Mapping[str, QueryPart],
    roles: QueryRoles | None,
    rule: ThresholdRule,
    cluster_ids: ClusterIds,
) -> LabelledParts:
    """Decide which answerable queries limit ρ, and which report how many right answers it loses.

    Calibration queries limit ρ, and held-out ones report. If a loss is certified, it is the other way round, because
    the calibration queries certify; without held-out queries, those that fit the model of relevance limit ρ and
    certify nothing.

    Args:
        parts: "calibration" and, with a holdout, "heldout".
        roles: None with too few queries.
        rule: Rule of the threshold.
        cluster_ids: As in LabelledParts.
    """
    members = parts["calibration"].members
    limiting = members
    if rule.statement is not None:
        limiting = parts["heldout"].members if "heldout" in parts else roles.fit if roles else members[:0]
    limits, certifies = (np.zeros(sum(len(part.members) for part in parts.values()), dtype=np.bool_) for _ in range(2))
    limits[limiting] = True
    if rule.statement is not None:
        certifies[members] = ~limits[members]
    reports = limits if limits.all() else ~limits
    return LabelledParts(limits, reports, certifies, cluster_ids)


def refuse_by_default(
    search: LabelledSearch,
    parts: LabelledParts,
    roles: QueryRoles | None,
    rule: ThresholdRule,
    kept: RefusalRecord | None,
) -> DefaultRefusal | None:
    """Choose ρ, or keep that of an earlier release, and measure what it refuses.

    None if the documents seem to answer all questions about other subjects.

    Args:
        search: The searched data set.
        parts: Parts of the answerable queries.
        roles: None with too few queries.
        rule: Rule of the threshold.
        kept: Record of the earlier release; None to choose ρ.
    """
    judged, k = search.judged, search.judged.grades.shape[1]
    scores = judged.top.scores[:, 0]
    found: Mask = judged.accuracy() > 0
    limiting, reported = (RightAnswers.of(scores, found, part, search.units) for part in (parts.limits, parts.reports))
    kinds = _kinds(search, parts, limiting)
    if not kinds.off_topic.reports.any():
        return None
    off_topic = None
    if kept is not None:
        rho, provisional = kept.rho, kept.provisional
    else:
        # Generated queries resemble their documents more than people's queries do, so ρ could lose many of the latter.
        generated = any(query.origin in {"crop", "llm"} for query in search.dataset.answerable)
        provisional = generated or not can_limit(MAX_LOST, len(search.units))
        lost = LostShares.under(rule)
        # A few crops, some of two or three words, say too little about people's questions to limit ρ, unless a loss is
        # certified for them.
        right = limiting.scores[:0] if provisional and rule.statement is None else limiting.scores
        rho = choose_rho(right, kinds.choosing(right, lost), lost)
        off_topic = off_topic_refused(right, kinds, lost)
    record = refusal_record(rho, reported, kinds, off_topic, provisional=provisional)
    fitted = roles is not None and bool(parts.certifies.any() and parts.limits[roles.fit].all())
    answering = AnsweredQueries(
        scores, search.unanswerable.scores[:, 0], np.float32(rho), certified=True, fitted=fitted
    )
    return DefaultRefusal(answer_rule(rho, k), record, answering)


def _kinds(search: LabelledSearch, parts: LabelledParts, right: RightAnswers) -> ProbedKinds:
    """Score the questions of every kind. A kind without a question to report is left out."""
    dataset, encoded, index = search.dataset, search.encoded, search.index
    off_topic, left_out = off_topic_probes(dataset, encoded, index, right.scores)
    removed, rows = removed_documents(dataset, encoded, index, 1)
    sources: Sequence[Probes] = [parts.of_sources(removed.scores[:, 0], rows)]
    if encoded.near_misses is not None and len(encoded.near_misses.vectors):
        top = index.search(encoded.near_misses.vectors, 1)
        sources = [*sources, parts.of_sources(top.scores[:, 0], encoded.near_misses.sources)]
    near_miss, unanswerable = Probes.joined(sources), parts.of_unanswerable(search.unanswerable.scores[:, 0])
    return ProbedKinds(
        off_topic,
        near_miss if near_miss.reports.any() else None,
        unanswerable if unanswerable.reports.any() else None,
        left_out,
    )
