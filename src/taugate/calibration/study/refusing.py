"""Sets the default refusal of a study: collects the questions that no document answers, chooses ρ and measures it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from taugate.calibration.abstention.probes import LabelledParts, Probes, off_topic_probes, removed_documents
from taugate.calibration.abstention.refusal import (
    MAX_LOST,
    DefaultRefusal,
    ProbedKinds,
    RightAnswers,
    answer_rule,
    can_limit,
    choose_rho,
    lost_share,
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
    """Decide which answerable queries choose ρ, and which report what it refuses.

    If a loss is certified, the queries that fit the model of relevance choose ρ, and certify nothing then; if these are
    too few to limit what ρ loses, none chooses, and held-out queries limit it. Otherwise all calibration queries
    choose. Held-out queries report; without any, those that did not choose, else all.

    Args:
        parts: "calibration" and, with a holdout, "heldout".
        roles: None with too few queries.
        rule: Rule of the threshold.
        cluster_ids: As in LabelledParts.
    """
    members = parts["calibration"].members
    queries = sum(len(part.members) for part in parts.values())
    heldout = parts["heldout"].members if "heldout" in parts else members[:0]
    chooses, reports, certifies = (np.zeros(queries, dtype=np.bool_) for _ in range(3))
    if rule.statement is None:
        chooses[members] = True
    else:
        enough = roles is not None and can_limit(lost_share(rule, chosen=True), len(roles.fit))
        if roles is not None and (enough or not len(heldout)):
            chooses[roles.fit] = True
        certifies[members] = ~chooses[members]
    reports[heldout if len(heldout) else members] = True
    if (reports & ~chooses).any():
        reports &= ~chooses
    return LabelledParts(chooses, chooses if chooses.any() else reports & ~certifies, reports, certifies, cluster_ids)


def refuse_by_default(
    search: LabelledSearch, parts: LabelledParts, rule: ThresholdRule, kept: RefusalRecord | None
) -> DefaultRefusal | None:
    """Choose ρ, or keep that of an earlier release, and measure what it refuses.

    None if the documents seem to answer all questions about other subjects.

    Args:
        search: The searched data set.
        parts: Parts of the answerable queries.
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
    if kept is not None:
        rho, provisional = kept.rho, kept.provisional
    else:
        # Generated queries resemble their documents more than people's queries do, so ρ could lose many of the latter.
        generated = any(query.origin in {"crop", "llm"} for query in search.dataset.answerable)
        labelled = int((parts.chooses | parts.certifies).sum())
        provisional = generated or not can_limit(MAX_LOST, labelled)
        alone = provisional or not parts.chooses.any()
        limit = lost_share(rule, chosen=bool(parts.chooses.any()))
        rho = choose_rho(limiting.scores, kinds.choosing(alone=alone), limit)
    record = refusal_record(rho, reported, kinds, provisional=provisional)
    fitted = bool(parts.chooses.any() and parts.certifies.any())
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
        made = parts.of_sources(top.scores[:, 0], encoded.near_misses.sources)
        # A near miss may have a word of a query that certifies, and must not choose then.
        sources = [*sources, replace(made, chooses=made.chooses & ~parts.certifies.any())]
    near_miss, unanswerable = Probes.joined(sources), parts.of_unanswerable(search.unanswerable.scores[:, 0])
    return ProbedKinds(
        off_topic,
        near_miss if near_miss.reports.any() else None,
        unanswerable if unanswerable.reports.any() else None,
        left_out,
    )
