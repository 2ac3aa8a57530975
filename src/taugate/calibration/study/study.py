"""Analyses a data set from its vectors to the rule in force; nothing is written."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.abstention.certify import CertifiedAbstention, abstain, keep_abstention
from taugate.calibration.abstention.choose import EncodedCorpus, QueryGroup
from taugate.calibration.abstention.no_answer import answered_off_topic, answered_unanswerable
from taugate.calibration.abstention.probes import LabelledSearch
from taugate.calibration.abstention.refusal import DefaultRefusal
from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.metrics.clusters import ClusterIds, SamplingUnits
from taugate.calibration.metrics.isotropy import Isotropy, isotropy
from taugate.calibration.metrics.measure import DrawnQueries, QueryPart, measure
from taugate.calibration.metrics.own_documents import own_passages_of, search_excluding_own
from taugate.calibration.metrics.ranking import JudgedQueries, ScoredQueries
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.progress import Job
from taugate.calibration.query_set.measure import measure_query_set
from taugate.calibration.query_set.warnings import wording_warnings
from taugate.calibration.query_set.wording import Wording, compare_wording
from taugate.calibration.relevance.model import (
    AppliedRelevance,
    EstimatedRelevance,
    apply_relevance,
    estimate_relevance,
)
from taugate.calibration.relevance.record import kept_relevance_record, relevance_record
from taugate.calibration.risk import words
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.refusing import divide, refuse_by_default
from taugate.calibration.study.unanswered import divide_unanswered, question_parts
from taugate.calibration.threshold.calibration_queries import CalibrationQueries
from taugate.calibration.threshold.decide import alternatives, decide_policy
from taugate.calibration.threshold.few_labels import FewLabels
from taugate.calibration.threshold.policy_choice import certifiable_policy
from taugate.calibration.threshold.shortage import with_shortage
from taugate.calibration.threshold.strata import QueryStrata, StrataCertifier
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.index.hybrid import HybridIndex, vector_index
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.top_k import Index, TopK
from taugate.retrieval.policy.abstention import AnswerRule
from taugate.retrieval.policy.word_match import DocumentWords
from taugate.retrieval.release.evidence import Alternative, RelevanceRecord, StrataRecord
from taugate.retrieval.release.labels import LabelsRecord
from taugate.retrieval.release.manifest import MetricsRecord, PolicyRecord
from taugate.retrieval.release.records import NoAnswerRecord, QuerySetRecord
from taugate.retrieval.vectors.queries import QueryVectors, dense_of
from taugate.retrieval.vectors.similarity import Float32

# Similarities of equal vectors differ by a few units in the last place of float32, 6e-8 near 1.
_ROUNDING = 1e-6
_CHECKED = 256  # queries whose similarities are compared: if all of them are equal, so are the others


@dataclass(frozen=True)
class ScoredPart(QueryPart):
    """A part of the queries, with the similarities of its random documents.

    Attributes:
        random_scores: S_rand, (q,) float32, similarity of each query and its random document.
    """

    random_scores: Float32


@dataclass(frozen=True)
class Findings:
    """The results of a calibration.

    Attributes:
        index: Index that was searched.
        scored: Every labelled query with its results and decision scores.
        parts: "calibration" and, with a holdout, "heldout".
        roles: Calibration queries that fit, help to choose and certify, None if there are too few.
        estimated: Model of relevance with its probabilities, None without one.
        policy: Policy in force, as in the manifest.
        metrics: Metrics of each part.
        alternatives: Rules that are not in force.
        relevance: Reliability of the model.
        isotropy: Isotropy of the documents.
        query_set: Diversity and labels of the queries.
        wording: Queries that copy their document, and answers that the corpus repeats.
        units: Sampling units of the answerable queries.
        strata: None if none were requested.
        abstention: Certified rule that refuses queries as a whole; None without one.
        refusal: Default rule that refuses queries as a whole; None without one.
        no_answer: Share of queries without an answer that get a result, None with the default refusal.
        labels: Estimates from few labels and a machine, None if labels are used alone.
    """

    index: Index
    scored: ScoredQueries
    parts: dict[str, ScoredPart]
    roles: QueryRoles | None
    estimated: AppliedRelevance | None
    policy: PolicyRecord
    metrics: dict[str, MetricsRecord]
    alternatives: list[Alternative]
    relevance: RelevanceRecord | None
    isotropy: Isotropy
    query_set: QuerySetRecord
    wording: Wording
    units: SamplingUnits
    strata: StrataRecord | None
    abstention: CertifiedAbstention | None
    refusal: DefaultRefusal | None
    no_answer: NoAnswerRecord | None
    labels: LabelsRecord | None = None

    @property
    def threshold(self) -> np.float32 | None:
        """τ in float32, as scores are compared with it; None without a cut."""
        return None if self.policy.tau is None else np.float32(self.policy.tau)

    @property
    def answer_rule(self) -> AnswerRule | None:
        """The rule that refuses queries as a whole, certified or default; None without one."""
        refusing = self.abstention or self.refusal
        return None if refusing is None else refusing.rule


def study(  # noqa: PLR0913, PLR0915, PLR0917 (the state and the steps of the calibration)
    dataset: Dataset,
    encoded: EncodedTexts,
    index: Index,
    drawn: DrawnQueries,
    settings: CalibrationSettings,
    job: Job,
    inherited: Inherited | None = None,
) -> Findings:
    """Search, fit, decide and measure.

    Args:
        dataset: Labelled queries and documents.
        encoded: Vectors of the data set, as they are searched.
        index: Index of the documents.
        drawn: Calibration queries and held-out queries.
        settings: Settings of the calibration.
        job: Times the stages.
        inherited: Parts of an earlier release to reuse, None if everything is fitted and chosen now.

    Raises:
        InputError: If the requested rule cannot be applied to the data.
    """
    parents = dataset.documents.parents
    with job.stage("search"):
        judged = JudgedQueries.judge(dataset.answerable, encoded.answerable, index, settings.k, parents)
        unanswerable = search_excluding_own(
            index, own_passages_of(dataset.unanswerable), encoded.unanswerable, settings.k
        )
        parts = {name: _scored(part, encoded.answerable, index) for name, part in drawn.parts.items()}
        _check_similarities(judged, encoded.answerable, index)
    units, members = drawn.units, parts["calibration"].members
    search = LabelledSearch(dataset, encoded, index, judged, unanswerable, units)
    cluster_ids = search.cluster_ids
    kept = None if inherited is None else inherited.refusal
    refuses = settings.refusal or kept is not None
    with job.stage("model"):
        roles = QueryRoles.assign(members, units, settings.seed)
        unanswered = None
        if refuses and roles:
            unanswered = divide_unanswered(search, roles, question_parts(parts, roles, len(judged)))
        no_answer = (unanswerable, encoded.unanswerable)
        fitted: EstimatedRelevance | None = None
        estimated: AppliedRelevance | None = None
        if inherited is not None:
            if inherited.relevance is not None:
                describing = members if roles is None else roles.fit
                model = inherited.relevance.model
                estimated = apply_relevance(model, judged, unanswerable, encoded, describing, unanswered)
        elif roles:
            fitted = estimated = estimate_relevance(
                judged, encoded.answerable, no_answer, roles, encoded.documents, encoded.lengths, unanswered
            )
        relevance = (estimated.answerable, estimated.unanswerable) if estimated else (None, None)
    with job.stage("abstention"):
        tops = (judged.top, unanswerable)
        abstention = _abstain(search, tops, cluster_ids, members, settings, inherited)
        refusal = None
        if refuses:
            divided = divide(parts, roles, settings.rule)
            refusal = refuse_by_default(search, divided, roles, settings.rule, kept)
        refusing = abstention or refusal
        answering = None if refusing is None else refusing.answering
        scored = ScoredQueries(judged, unanswerable, relevance[0], relevance[1], answering)
    with job.stage("labels"):
        few_labels = FewLabels.of(search, settings.seed)
    with job.stage("query set"):
        query_set_record, wording = _query_set(dataset, encoded, index, judged, parts, settings.seed)
        document_isotropy = isotropy(encoded.documents)
    with job.stage("threshold"):
        queries = CalibrationQueries(
            scored, members, parts["calibration"].resamples.rows, roles, fitted, units, settings.seed
        )
        policy = with_shortage(_decide(settings, queries, few_labels, inherited), dataset, queries, settings)
        policy, strata = _stratified(policy, dataset, encoded.answerable, index, settings, queries)
        if refusing is not None and inherited is None and policy.certificates and policy.tau is not None:
            # Estimates from few labels are of the cut alone.
            cut_alone = refusal is None or policy.statement == "labels"
            counted = words.WITHOUT_REFUSALS if cut_alone else words.WITH_REFUSALS
            policy = policy.model_copy(update={"guarantee": f"{policy.guarantee} {counted}"})
        # An inherited model may have seen the queries that would certify, so the alternatives do not use it.
        usable = scored if fitted else replace(scored, relevance=None, unanswerable_relevance=None)
        # Queries that chose ρ may certify an alternative, so alternatives do not refuse any.
        queries = replace(queries, scored=replace(usable, answering=None))
        other_rules = alternatives(settings.rule, queries, _measured_on(parts, roles))
        metrics = {name: _measure(part, scored, policy, settings) for name, part in parts.items()}
        if few_labels is not None:
            # A certificate counts every judged query once, which is wrong for queries sampled with weights.
            other_rules = [rule for rule in other_rules if rule.method == "bootstrap"]
            metrics = {name: few_labels.metrics(measured, policy) for name, measured in metrics.items()}
    heldout = parts["heldout"].members if "heldout" in parts else None
    reliability = None
    if fitted and roles:
        reliability = relevance_record(fitted, roles, judged, units, heldout, settings.seed)
    elif estimated and inherited and inherited.relevance_record:
        unseen = _unseen_by_fit(members, roles, heldout)
        reliability = kept_relevance_record(inherited.relevance_record, estimated, judged, units, unseen, settings.seed)
    return Findings(
        index=index,
        scored=scored,
        parts=parts,
        roles=roles,
        estimated=estimated,
        policy=policy,
        metrics=metrics,
        alternatives=other_rules,
        relevance=reliability,
        isotropy=document_isotropy,
        query_set=query_set_record,
        wording=wording,
        units=units,
        strata=strata,
        abstention=abstention,
        refusal=refusal,
        no_answer=_answered_without_answer(encoded, index, scored, policy, cluster_ids, refusing, estimated),
        labels=None if few_labels is None else few_labels.record(policy, settings.rule),
    )


def _decide(
    settings: CalibrationSettings,
    queries: CalibrationQueries,
    few_labels: FewLabels | None,
    inherited: Inherited | None,
) -> PolicyRecord:
    """Return the inherited policy, or the rule's policy; few labels limit a loss by a separate method."""
    if inherited and inherited.policy:
        return inherited.policy
    if few_labels and settings.rule.method == "risk-control":
        return few_labels.policy(settings.rule, settings.k)
    return decide_policy(settings.rule, queries)


def _answered_without_answer(  # noqa: PLR0913, PLR0917 (the two kinds of query without an answer)
    encoded: EncodedTexts,
    index: Index,
    scored: ScoredQueries,
    policy: PolicyRecord,
    cluster_ids: ClusterIds,
    refusing: CertifiedAbstention | DefaultRefusal | None,
    estimated: AppliedRelevance | None,
) -> NoAnswerRecord | None:
    """Count the unanswerable queries that get a result, or off-topic questions if there are no unanswerable queries.

    None with the default refusal, whose record counts them.

    `cluster_ids` are of the answerable queries, followed by the unanswerable ones.
    """
    if isinstance(refusing, DefaultRefusal):
        return None
    if len(scored.unanswerable):
        units = SamplingUnits.from_clusters(cluster_ids[len(scored.judged) :])
        return answered_unanswerable(scored, policy, units, refusing)
    model, off_topic = None if estimated is None else estimated.relevance, encoded.off_topic
    return answered_off_topic(index.search(off_topic, scored.judged.grades.shape[1]), off_topic, model, policy)


def _query_set(
    dataset: Dataset,
    encoded: EncodedTexts,
    index: Index,
    judged: JudgedQueries,
    parts: Mapping[str, ScoredPart],
    seed: int,
) -> tuple[QuerySetRecord, Wording]:
    """Measure the answerable queries, and compare their words with those of the documents."""
    queries, parents = dataset.answerable, dataset.documents.parents
    random_scores = np.concatenate([part.random_scores for part in parts.values()])
    record = measure_query_set(queries, judged, random_scores, encoded.documents, seed, parents)
    wording = compare_wording(dataset, encoded, index)
    warnings = [*record.warnings, *wording_warnings(wording, queries, judged.accuracy())]
    return record.model_copy(update={"warnings": warnings}), wording


def _abstain(
    search: LabelledSearch,
    tops: tuple[TopK, TopK],
    cluster_ids: ClusterIds,
    calibration: NDArray[np.int64],
    settings: CalibrationSettings,
    inherited: Inherited | None,
) -> CertifiedAbstention | None:
    """Choose and certify the abstention policy, or reuse the inherited one; None if there is none.

    `tops` and `cluster_ids` are of the answerable queries, followed by the unanswerable ones.
    """
    kept = None if inherited is None else inherited.abstention
    if settings.abstention is None and kept is None:
        return None
    dataset, encoded = search.dataset, search.encoded
    answerable = len(dataset.answerable)
    groups = (
        QueryGroup([query.text for query in dataset.answerable], encoded.answerable, tops[0], cluster_ids[:answerable]),
        QueryGroup(
            [query.text for query in dataset.unanswerable], encoded.unanswerable, tops[1], cluster_ids[answerable:]
        ),
    )
    corpus = EncodedCorpus(encoded.documents, _document_words(search, None if kept is None else kept[0]))
    if kept is not None:
        return keep_abstention(*kept, *groups, corpus)
    if settings.abstention is None:
        raise AssertionError("abstention is neither requested nor inherited")
    return abstain(settings.abstention, *groups, corpus, calibration, settings.seed)


def _document_words(search: LabelledSearch, kept: AnswerRule | None) -> DocumentWords:
    """Return the words of the documents: those of the search, or indexed in the way of an inherited rule."""
    documents, index = search.dataset.documents, search.index
    words = None if kept is None else kept.score.signals.words
    if isinstance(index, HybridIndex):
        lexical = index.lexical
    else:
        texts = (document.encoded_text for document in documents)
        lexical = LexicalIndex.of(texts) if words is None else words.index.of_other_texts(texts)
    return DocumentWords.of_documents(lexical, documents)


def _stratified(
    policy: PolicyRecord,
    dataset: Dataset,
    vectors: QueryVectors,
    index: Index,
    settings: CalibrationSettings,
    queries: CalibrationQueries,
) -> tuple[PolicyRecord, StrataRecord | None]:
    """Certify the policy in each stratum, if strata are requested and there is a cut.

    Returns:
        The policy with a τ that holds in each stratum, and the record of the strata.
    """
    rule = settings.rule
    if rule.strata is None or policy.tau is None:
        return policy, None
    candidate = certifiable_policy(rule, policy.kind, queries)
    certifier = StrataCertifier(
        dataset, vectors, index, queries, candidate.queries, policy.kind, next(candidate.rule.split_by_loss())
    )
    strata = certifier.certify(QueryStrata.group(dataset, rule.strata))
    return certifier.lowered(policy, strata), strata


def _measured_on(parts: Mapping[str, ScoredPart], roles: QueryRoles | None) -> NDArray[np.int64]:
    """Return the queries that influenced the rule least: held-out ones, else those that did not fit the model."""
    if "heldout" in parts:
        return parts["heldout"].members
    return parts["calibration"].members if roles is None else roles.not_fitting


def _unseen_by_fit(
    members: NDArray[np.int64], roles: QueryRoles | None, heldout: NDArray[np.int64] | None
) -> tuple[Literal["calibration", "heldout"], NDArray[np.int64]]:
    """Return the queries on which a model of relevance is measured, with the name of their part."""
    if heldout is not None:
        return "heldout", heldout
    return "calibration", members if roles is None else roles.not_fitting


def _check_similarities(judged: JudgedQueries, vectors: QueryVectors, index: Index) -> None:
    """Raise InputError if all similarities are equal, even if the words of the texts differ."""
    dense, some = vector_index(index), slice(_CHECKED)
    similarities = dense.score(dense_of(vectors)[some], judged.top.positions[some])
    random = np.random.default_rng(0).integers(0, len(dense), (len(similarities), 1))
    similarities = np.concatenate([similarities.ravel(), dense.score(dense_of(vectors)[some], random).ravel()])
    if np.ptp(similarities) <= _ROUNDING:
        raise InputError(
            f"every similarity is {similarities[0]:.6g}, so no threshold can separate documents: the encoder gives all "
            "texts the same vector, or all texts are the same"
        )


def _scored(part: QueryPart, vectors: QueryVectors, index: Index) -> ScoredPart:
    documents = part.resamples.random_documents[:, None]
    return ScoredPart(part.members, part.resamples, index.score(vectors[part.members], documents)[:, 0])


def _measure(
    part: ScoredPart, scored: ScoredQueries, policy: PolicyRecord, settings: CalibrationSettings
) -> MetricsRecord:
    tau = None if policy.tau is None else np.float32(policy.tau)
    queries = scored.take(part.members)
    return measure(queries, part.random_scores, part.resamples, policy.kind, tau, settings.overlap_percentile)
