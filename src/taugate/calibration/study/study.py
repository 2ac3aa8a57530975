"""Analyses a data set from its vectors to the scores of its queries; no threshold is chosen, and nothing is written."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.calibration.abstention.certify import CertifiedAbstention, abstain, keep_abstention
from taugate.calibration.abstention.choose import EncodedCorpus, QueryGroup
from taugate.calibration.abstention.refusal import DefaultRefusal
from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.metrics.isotropy import isotropy
from taugate.calibration.metrics.measure import QueryPart
from taugate.calibration.metrics.own_documents import own_passages_of, search_excluding_own
from taugate.calibration.metrics.ranking import JudgedQueries, ScoredQueries
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.query_set.measure import measure_query_set
from taugate.calibration.query_set.warnings import wording_warnings
from taugate.calibration.query_set.wording import Wording, compare_wording
from taugate.calibration.relevance.model import (
    AppliedRelevance,
    EstimatedRelevance,
    apply_relevance,
    estimate_relevance,
)
from taugate.calibration.relevance.probes import LabelledSearch
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.refusing import divide, refuse_by_default
from taugate.calibration.study.unanswered import divide_unanswered, question_parts
from taugate.calibration.threshold.few_labels import FewLabels
from taugate.errors import InputError
from taugate.retrieval.index.hybrid import HybridIndex, vector_index
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.top_k import Index
from taugate.retrieval.policy.abstention import AnswerRule
from taugate.retrieval.policy.word_match import DocumentWords
from taugate.retrieval.release.records import QuerySetRecord
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
class Study:
    """A data set whose labelled queries were searched and scored.

    Attributes:
        search: The data set with the results of its labelled queries.
        scored: Every labelled query with its results and decision scores.
        parts: "calibration" and, with a holdout, "heldout".
        roles: Calibration queries that fit, and those that do not, None if there are too few.
        estimated: Model of relevance with its probabilities, None without one.
        abstention: Certified rule that refuses queries as a whole; None without one.
        refusal: Default rule that refuses queries as a whole; None without one.
        few_labels: Estimates from few labels and a machine, None if labels are used alone.
        wording: Queries that copy their document, and answers that the corpus repeats.
        records: Records of the manifest that do not depend on the threshold.
    """

    search: LabelledSearch
    scored: ScoredQueries
    parts: dict[str, ScoredPart]
    roles: QueryRoles | None
    estimated: AppliedRelevance | None
    abstention: CertifiedAbstention | None
    refusal: DefaultRefusal | None
    few_labels: FewLabels | None
    wording: Wording
    records: Mapping[str, Any]

    @property
    def fitted(self) -> EstimatedRelevance | None:
        """The model of relevance if it was fitted on these queries; None if it is inherited, or without one."""
        return self.estimated if isinstance(self.estimated, EstimatedRelevance) else None

    @property
    def refusing(self) -> CertifiedAbstention | DefaultRefusal | None:
        """What refuses queries as a whole, certified or by default; None if nothing does."""
        return self.abstention or self.refusal

    @property
    def answer_rule(self) -> AnswerRule | None:
        """The rule that refuses queries as a whole; None without one."""
        return None if self.refusing is None else self.refusing.rule

    @property
    def measured(self) -> ScoredPart:
        """The held-out queries, or the calibration queries without a holdout."""
        return self.parts.get("heldout", self.parts["calibration"])


def study(inputs: CalibrationInputs, encoded: EncodedTexts, index: Index, inherited: Inherited | None = None) -> Study:
    """Search for all labelled queries, fit the model of relevance, and set what refuses queries.

    Args:
        inputs: The data set and the settings.
        encoded: Vectors of the data set, as they are searched.
        index: Index of the documents.
        inherited: Parts of an earlier release to reuse, None if everything is fitted and chosen now.

    Raises:
        InputError: If the requested rule cannot be applied to the data.
    """
    job, dataset, settings, units = inputs.job, inputs.dataset, inputs.settings, inputs.units
    with job.stage("search"):
        parents = dataset.documents.parents
        judged = JudgedQueries.judge(dataset.answerable, encoded.answerable, index, settings.k, parents)
        own_passages = own_passages_of(dataset.unanswerable)
        unanswerable = search_excluding_own(index, own_passages, encoded.unanswerable, settings.k)
        search = LabelledSearch(dataset, encoded, index, judged, unanswerable, units)
        parts = {name: _scored(part, encoded.answerable, index) for name, part in inputs.drawn.parts.items()}
        _check_similarities(search)
    members = parts["calibration"].members
    kept = None if inherited is None else inherited.refusal
    refuses = settings.refusal or kept is not None
    with job.stage("model"):
        roles = QueryRoles.assign(members, units, settings.seed)
        estimated = _estimate(search, parts, roles, inherited, refuses=refuses)
    with job.stage("abstention"):
        abstention = _abstain(search, members, settings, inherited)
        refusal = None
        if refuses:
            divided = divide(parts, roles, settings.rule)
            refusal = refuse_by_default(search, divided, roles, settings.rule, kept)
        refusing = abstention or refusal
        answering = None if refusing is None else refusing.answering
        scored = ScoredQueries(judged, unanswerable, None, None, answering)
        if estimated is not None:
            with threadpool_limits(limits=1):  # the same data give the same bits
                of_unanswerable = estimated.relevance.estimate(encoded.unanswerable, unanswerable)
            scored = replace(scored, relevance=estimated.answerable, unanswerable_relevance=of_unanswerable)
    with job.stage("labels"):
        few_labels = FewLabels.of(search, settings.seed)
    with job.stage("query set"):
        query_set, wording = _query_set(search, parts, settings.seed)
    records = {
        "isotropy": isotropy(encoded.documents),
        "query_set": query_set,
        "evidence": units.record,
        "abstention": abstention and abstention.record,
        "refusal": refusal and refusal.record,
    }
    return Study(search, scored, parts, roles, estimated, abstention, refusal, few_labels, wording, records)


def _estimate(
    search: LabelledSearch,
    parts: Mapping[str, ScoredPart],
    roles: QueryRoles | None,
    inherited: Inherited | None,
    *,
    refuses: bool,
) -> AppliedRelevance | None:
    """Fit the model of relevance, or apply the inherited one; None if there are too few queries, or none is inherited.

    If the calibration refuses queries, the model also learns from questions that no document answers.
    """
    judged, encoded = search.judged, search.encoded
    unanswered = None
    if refuses and roles:
        unanswered = divide_unanswered(search, roles, question_parts(parts, roles, len(judged)))
    if inherited is not None:
        if inherited.relevance is None:
            return None
        describing = parts["calibration"].members if roles is None else roles.fit
        model = inherited.relevance.model
        return apply_relevance(model, judged, encoded, describing, unanswered)
    if roles is None:
        return None
    return estimate_relevance(judged, encoded.answerable, roles, encoded.documents, encoded.lengths, unanswered)


def _query_set(search: LabelledSearch, parts: Mapping[str, ScoredPart], seed: int) -> tuple[QuerySetRecord, Wording]:
    """Measure the answerable queries, and compare their words with those of the documents."""
    dataset, judged, encoded = search.dataset, search.judged, search.encoded
    random_scores = np.concatenate([part.random_scores for part in parts.values()])
    parents = dataset.documents.parents
    record = measure_query_set(dataset.answerable, judged, random_scores, encoded.documents, seed, parents)
    wording = compare_wording(dataset, encoded, search.index)
    warnings = [*record.warnings, *wording_warnings(wording, dataset.answerable, judged.accuracy())]
    return record.model_copy(update={"warnings": warnings}), wording


def _abstain(
    search: LabelledSearch,
    calibration: NDArray[np.int64],
    settings: CalibrationSettings,
    inherited: Inherited | None,
) -> CertifiedAbstention | None:
    """Choose and certify the abstention policy, or reuse the inherited one; None if there is none."""
    kept = None if inherited is None else inherited.abstention
    if settings.abstention is None and kept is None:
        return None
    dataset, encoded, clusters = search.dataset, search.encoded, search.cluster_ids
    answerable = len(dataset.answerable)
    groups = (
        QueryGroup(
            [query.text for query in dataset.answerable], encoded.answerable, search.judged.top, clusters[:answerable]
        ),
        QueryGroup(
            [query.text for query in dataset.unanswerable],
            encoded.unanswerable,
            search.unanswerable,
            clusters[answerable:],
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


def _check_similarities(search: LabelledSearch) -> None:
    """Raise InputError if all similarities are equal, even if the words of the texts differ."""
    dense, some = vector_index(search.index), slice(_CHECKED)
    vectors = dense_of(search.encoded.answerable)[some]
    similarities = dense.score(vectors, search.judged.top.positions[some])
    random = np.random.default_rng(0).integers(0, len(dense), (len(similarities), 1))
    similarities = np.concatenate([similarities.ravel(), dense.score(vectors, random).ravel()])
    if np.ptp(similarities) <= _ROUNDING:
        raise InputError(
            f"every similarity is {similarities[0]:.6g}, so no threshold can separate documents: the encoder gives all "
            "texts the same vector, or all texts are the same"
        )


def _scored(part: QueryPart, vectors: QueryVectors, index: Index) -> ScoredPart:
    documents = part.resamples.random_documents[:, None]
    return ScoredPart(part.members, part.resamples, index.score(vectors[part.members], documents)[:, 0])
