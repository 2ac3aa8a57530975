"""The search of a corpus by its vectors, in an index or an engine."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.metrics.embeddings import isotropy
from taugate.calibration.metrics.inputs import CalibrationInputs, judge_queries, own_passages_of, search_excluding_own
from taugate.calibration.query_set.measure import measure_query_set
from taugate.calibration.query_set.warnings import compare_wording, wording_warnings
from taugate.calibration.relevance import LabelledSearch, apply_relevance, estimate_relevance
from taugate.calibration.study.refusing import LabelledParts, RefusalQuestions
from taugate.calibration.study.study import DescribedTexts, Inherited, Parts, Search
from taugate.calibration.threshold.few_labels import FewLabels
from taugate.errors import InputError
from taugate.evidence.abstention.choose import EncodedCorpus, LabelledGroups, QueryGroup
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.measure import PartName, QueryPart
from taugate.evidence.relevance.fitting import AppliedRelevance, Unanswered, UnansweredQuestions
from taugate.policy.abstention import AnswerRule
from taugate.policy.arrays import Float32, dense_of
from taugate.policy.policy import Mask
from taugate.retrieval.index.hybrid import vector_index, words_of
from taugate.retrieval.index.lexical import DocumentWords, LexicalIndex, index_of
from taugate.retrieval.index.top_k import Index

# Similarities of equal vectors differ by a few units in the last place of float32, 6e-8 near 1.
_ROUNDING = 1e-6
_CHECKED = 256  # queries whose similarities are compared: if all of them are equal, so are the others


def question_parts(parts: Mapping[PartName, QueryPart], roles: QueryRoles, queries: int) -> tuple[Mask, Mask]:
    """Return which of n answerable queries make questions to learn from, and to measure with, (n,) bool each.

    Held-out queries measure, and all calibration queries learn: their questions only take part in the recalibration,
    which moves no result past another. Without held-out queries, those that did not fit the model measure.
    """
    learns, measures = np.zeros(queries, dtype=np.bool_), np.zeros(queries, dtype=np.bool_)
    heldout = parts.get("heldout")
    learns[roles.fit if heldout is None else parts["calibration"].members] = True
    measures[roles.not_fitting if heldout is None else heldout.members] = True
    return learns, measures


def divide_unanswered(search: LabelledSearch, roles: QueryRoles, parts: tuple[Mask, Mask]) -> Unanswered | None:
    """Divide every kind of question that no document answers; None without off-topic questions to learn from.

    Off-topic questions that choose ρ learn, and the half that was written apart measures. Clusters of the user's own
    unanswerable queries learn and measure in turn.

    Args:
        roles: Roles of the answerable queries; which off-topic questions seem answered depends on the fitting ones.
    """
    fitting = search.judged.take(roles.fit)
    remains = search.off_topic_remaining(fitting.top.scores[fitting.accuracy() > 0, 0])
    turn = np.array([question.chooses for question in search.dataset.off_topic])
    kinds: list[tuple[UnansweredQuestions, Mask, Mask]] = [(search.off_topic, remains & turn, remains & ~turn)]
    kinds += [(kind, parts[0][sources], parts[1][sources]) for kind, sources in search.near_misses]
    own = search.own
    if own.top.scores.shape[1] == search.off_topic.top.scores.shape[1]:  # else queries are themselves documents of few
        learns: Mask = np.unique(own.clusters, return_inverse=True)[1] % 2 == 0
        kinds.append((own, learns, ~learns))
    learning, measuring = ([kind.take(masks[part]) for kind, *masks in kinds if masks[part].any()] for part in range(2))
    return Unanswered(learning, measuring) if (remains & turn).any() else None


@dataclass(frozen=True)
class CorpusSearch(Search):
    """Searches the documents of a data set."""

    inputs: CalibrationInputs  # the data set, the division of its queries, and the settings
    encoded: EncodedTexts  # vectors of the data set, as they are searched
    index: Index

    @property
    def queries(self) -> LabelledSearch:
        """The labelled queries with their results; raises InputError if all similarities are equal."""
        return self._searched

    @cached_property
    def _searched(self) -> LabelledSearch:
        dataset, encoded, index, k = self.inputs.dataset, self.encoded, self.index, self.inputs.settings.k
        judged = judge_queries(dataset.answerable, encoded.answerable, index, k, dataset.parents)
        own_passages = own_passages_of(dataset.unanswerable)
        unanswerable = search_excluding_own(index, own_passages, encoded.unanswerable, k)
        search = LabelledSearch(dataset, judged, unanswerable, self.inputs.units, encoded, index)
        _check_similarities(search)
        return search

    @property
    def corpus(self) -> LabelledSearch:
        """The labelled queries, whose documents are known."""
        return self.queries

    @property
    def vectors(self) -> Self:
        """This search, which has vectors."""
        return self

    def random(self, part: QueryPart) -> Float32:
        """Score the random documents of a part of the queries, (q,) float32."""
        documents = part.resamples.random_documents[:, None]
        return self.index.score(self.encoded.answerable[part.members], documents)[:, 0]

    def relevance(
        self, parts: Parts, roles: QueryRoles | None, inherited: Inherited | None, *, refuses: bool
    ) -> tuple[AppliedRelevance, Float32] | None:
        """See `VectorSearch.relevance`."""
        judged, encoded, search = self.queries.judged, self.encoded, self.queries
        unanswered, estimated = None, None
        if refuses and roles:
            unanswered = divide_unanswered(search, roles, question_parts(parts, roles, len(judged)))
        if inherited is not None and inherited.relevance is not None:
            describing = parts["calibration"].members if roles is None else roles.fit
            estimated = apply_relevance(inherited.relevance.model, judged, encoded, describing, unanswered)
        elif inherited is None and roles is not None:
            vectors, documents = encoded.answerable, encoded.documents
            estimated = estimate_relevance(judged, vectors, roles, documents, encoded.lengths, unanswered)
        relevance = None if estimated is None else estimated.of_vectors
        if estimated is None or relevance is None:
            return None
        with threadpool_limits(limits=1):  # the same data give the same bits
            return estimated, relevance.estimate(encoded.unanswerable, search.unanswerable)

    def groups(self, calibration: NDArray[np.int64], kept: AnswerRule | None) -> LabelledGroups:
        """See `Search.groups`."""
        search, encoded = self.queries, self.encoded
        clusters, answerable = search.cluster_ids, len(search.judged)
        groups = [
            QueryGroup([query.text for query in queries], vectors, top, of_queries)
            for queries, vectors, top, of_queries in (
                (search.dataset.answerable, encoded.answerable, search.judged.top, clusters[:answerable]),
                (search.dataset.unanswerable, encoded.unanswerable, search.unanswerable, clusters[answerable:]),
            )
        ]
        corpus = EncodedCorpus(encoded.documents, self._document_words(kept))
        return LabelledGroups(groups[0], groups[1], corpus, calibration, self.inputs.settings.seed)

    def questions(self, parts: LabelledParts) -> RefusalQuestions | None:
        """See `Search.questions`."""
        return RefusalQuestions.of_corpus(self.queries, parts, self.inputs.settings.seed)

    def few_labels(self) -> FewLabels | None:
        """Estimate from few labels and a machine; None if labels are used alone."""
        return FewLabels.of(self.queries, self.inputs.settings.seed)

    def describe(self, parts: Parts) -> DescribedTexts:
        """Measure the queries, the isotropy of the documents, and how similar the words of both are."""
        dataset, judged, seed = self.inputs.dataset, self.queries.judged, self.inputs.settings.seed
        random_scores = np.concatenate([self.random(part) for part in parts.values()])
        record = measure_query_set(
            dataset.answerable, judged, random_scores, self.encoded.documents, seed, dataset.parents
        )
        wording = compare_wording(dataset, self.encoded, self.index)
        warnings = [*record.warnings, *wording_warnings(wording, dataset.answerable, judged.accuracy())]
        query_set = record.model_copy(update={"warnings": warnings})
        return DescribedTexts(isotropy(self.encoded.documents), query_set, wording)

    def _document_words(self, kept: AnswerRule | None) -> DocumentWords:
        """Return the words of the documents: those of the search, or indexed in the way of an inherited rule."""
        documents = self.inputs.dataset.documents
        words = None if kept is None else index_of(kept.score.signals.words)
        hybrid = words_of(self.index)
        if hybrid is not None:
            return DocumentWords.of_documents(hybrid.lexical, documents)
        texts = (document.encoded_text for document in documents)
        lexical = LexicalIndex.of(texts) if words is None else words.of_other_texts(texts)
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
