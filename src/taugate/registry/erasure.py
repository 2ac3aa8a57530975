"""Erasure: derives a release without some of its documents, rebuilding all parts that depend on documents.

Only golden queries are encoded, and nothing is measured or chosen again: thresholds and figures are those of the
calibration. Promises that the removal may break are withdrawn (`taugate.registry.after_erasure`).
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError
from taugate.policy.abstention import AnswerRule, AnswerScore, Signals
from taugate.policy.arrays import Float32, mean_and_covariance
from taugate.policy.relevance import Background, Relevance, similarity_moments
from taugate.registry import writer
from taugate.registry.after_erasure import kept_promises
from taugate.registry.catalog import find, unverified_manifest
from taugate.registry.history import lock_for_reading
from taugate.release import layout
from taugate.release.engine import KIND
from taugate.release.evidence import StrataRecord
from taugate.release.files import MeasuredFolder
from taugate.release.golden import GoldenQuery
from taugate.release.manifest import Manifest
from taugate.release.search_records import KnownPair, TokenVectorsRecord, read_pairs
from taugate.release.state import ErasureRecord
from taugate.release.verify import TrustedKeys
from taugate.retrieval.documents.filters import SortKey, composed, sort_key
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Document, Documents, DocumentWriter
from taugate.retrieval.folders import CorpusFolder, EncoderFolder, ModelsFolder, RerankerFolder
from taugate.retrieval.golden import as_query, check, differences, search
from taugate.retrieval.index.approximate import AnyIndex, subset
from taugate.retrieval.index.hybrid import HybridIndex, vector_index, words_of
from taugate.retrieval.index.lexical import DocumentWords, LexicalIndex, index_of, lexical_record
from taugate.retrieval.index.top_k import DocumentSubset
from taugate.retrieval.reader import Release, load
from taugate.retrieval.rerank.late_interaction import TokenVectors, token_vectors_of
from taugate.retrieval.rerank.stage import SecondStageRule
from taugate.retrieval.retriever import Retriever

# Copied unchanged, as the encoders are: the projection of queries and the scores of queries contain no document.
_COPIED = frozenset({layout.EVIDENCE, layout.PROJECTION, layout.REFERENCE, layout.OUTCOMES})
_MAX_LISTED = 3  # unknown documents that an error lists
_REPORT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>A release without {documents} documents</title>
<p>This release was derived from <code>{release}</code> by erasing documents. In all, {documents} of the documents in
the calibration have been erased. The figures in <code>manifest.json</code> are those of the calibration. The report of
the calibration is not included, because it quotes documents.</p>
</html>
"""


@dataclass(frozen=True)
class Erasure:
    """The outcome of an erasure."""

    manifest: Manifest
    changed: int  # number of golden queries with another answer than before
    dropped: int  # number of golden queries removed because only erased documents answer them


def erase(releases: Path, name: str, ids: Sequence[str], trusted: TrustedKeys | None = None) -> Erasure:
    """Write a new release without some documents of another one. It is not promoted."""
    source = find(releases, name)
    _check_in_process(source)
    with lock_for_reading(source):
        release = load(source, trusted=trusted)
        kept = _kept_positions(release, ids)
        documents = _DocumentView(release.documents, kept)
        retriever = _without_erased(release.retriever, kept, documents)
        queries, changed = _golden_queries(release, retriever, documents)
        check(retriever, queries, release.manifest.golden_tolerance)
        before = 0 if release.manifest.erasure is None else release.manifest.erasure.documents
        erasure = ErasureRecord(
            release=source.name,
            documents=before + len(release.documents) - len(kept),
            recall=_index_recall(retriever, queries, release.manifest.index.depth),
        )
        rule = retriever if retriever.second is None else retriever.second.rule
        known = _known_pairs(source, release.manifest, documents)

        def fill(folder: Path) -> None:
            _copy_unchanged(source, release.manifest, folder)
            corpus = CorpusFolder(folder)
            corpus.write(vector_index(retriever.index), documents, retriever.metadata)
            if (hybrid := words_of(retriever.index)) is not None:
                corpus.write_words(hybrid.lexical)
            ModelsFolder(folder).write(rule.relevance, _answer_score(rule))
            MeasuredFolder(folder).write(queries, _REPORT.format(**erasure.model_dump()))
            if release.manifest.second_stage is not None:
                # Its scores are of a query and a text, so nothing else of it depends on other documents.
                model = None if release.manifest.second_stage.kind == "endpoint" else source / layout.RERANKER_FOLDER
                reranker = RerankerFolder(folder / layout.RERANKER_FOLDER)
                reranker.write(model, known, _token_vectors(retriever), kept.tolist())
                first = ModelsFolder(folder / layout.FIRST_STAGE_FOLDER)
                first.write(retriever.relevance, _answer_score(retriever))

        manifest = writer.write(releases, _draft(release, erasure, retriever, kept), fill, parent=source.name)
    return Erasure(manifest, changed, len(release.golden) - len(queries))


def _check_in_process(source: Path) -> None:
    """Raise InputError for a release over an engine, whose collections are never changed."""
    record = unverified_manifest(source.parent, source.name).get("engine")
    if isinstance(record, dict):
        stated = record.get("kind")
        kind = stated if isinstance(stated, str) and KIND.match(stated) else "ENGINE"
        raise InputError(
            f"{source.name}: its documents are in {kind}, in a collection that is never changed; remove them from the "
            "data set, run taugate recalibrate, remove the earlier releases, and drop their collections with "
            f"taugate release prune --engine {kind}"
        )


class _DocumentView(Sequence[Document]):
    """The documents at some positions of a store, read when needed."""

    def __init__(self, documents: Documents, positions: NDArray[np.int64]) -> None:
        """View `documents` at `positions`, (M,) int64."""
        self._documents = documents
        self._positions: list[int] = positions.tolist()

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return [self._documents[position] for position in self._positions[index]]
        return self._documents[self._positions[index]]

    def save(self, folder: Path) -> None:
        """Write the files of a DocumentStore."""
        texts = DocumentWriter(folder)
        for document in self:
            texts.append(document)
        texts.close()


def _kept_positions(release: Release, ids: Sequence[str]) -> NDArray[np.int64]:
    """Return the positions of the remaining documents, (M,) int64, ascending."""
    name, erased = release.manifest.release_id, set(ids)
    named = (
        (position, {document.id, document.document_id} & erased) for position, document in enumerate(release.documents)
    )
    gone = {position: names for position, names in named if names}  # a document's id names all of its chunks
    if unknown := sorted(erased.difference(*gone.values())):
        unlisted = f" and {len(unknown) - _MAX_LISTED} more" if len(unknown) > _MAX_LISTED else ""
        shown = ", ".join(map(repr, unknown[:_MAX_LISTED]))
        raise InputError(f"{name}: has no document {shown}{unlisted}; give ids as in the corpus (`_id`)")
    kept = np.setdiff1d(np.arange(len(release.documents)), [*gone])
    k = release.manifest.policy.k
    if len(kept) < k:
        raise InputError(
            f"{name}: {len(kept)} documents would be left, fewer than K = {k}; calibrate again without them"
        )
    return kept


def _without_erased(before: Retriever, kept: NDArray[np.int64], documents: Sequence[Document]) -> Retriever:
    """Rebuild every part of the retriever that depends on documents, from the remaining ones."""
    dense = subset(_dense_index(before), kept)
    vectors = dense.vectors[np.arange(len(kept))]
    lexical, hybrid = _lexical_index(before), words_of(before.index)
    words = None if lexical is None else lexical.subset(kept)
    searched = HybridIndex(dense, words, hybrid.weight) if hybrid and words else dense
    relevance, abstention = before.relevance, before.abstention
    if relevance is not None:
        relevance = replace(relevance, background=_background(relevance, kept, vectors))
    if abstention is not None:
        score = replace(abstention.score, signals=_signals(abstention, vectors, words, documents))
        abstention = replace(abstention, score=score)
    metadata = Metadata.of(documents)
    # `parents` is for grouping, which golden queries do not use; its positions of first chunks no longer hold.
    return replace(before, index=searched, relevance=relevance, metadata=metadata, abstention=abstention, parents=None)


def _dense_index(retriever: Retriever) -> AnyIndex:
    """Return the index of the documents' vectors, checked to be of a type that Taugate builds."""
    index = vector_index(retriever.index)
    if not isinstance(index, AnyIndex):
        raise TypeError(f"{type(index).__name__} is not a type of index that a release has")
    return index


def _lexical_index(retriever: Retriever) -> LexicalIndex | None:
    """Return the index of the documents' words, None if neither the search nor the refusals have one."""
    if (hybrid := words_of(retriever.index)) is not None:
        return hybrid.lexical
    return None if retriever.abstention is None else index_of(retriever.abstention.score.signals.words)


def _background(relevance: Relevance, kept: NDArray[np.int64], vectors: Float32) -> Background:
    """Measure similarity with random documents again; lengths, and similarity with random queries, are unchanged."""
    mean, covariance = mean_and_covariance(vectors)
    rows = relevance.background.rows(kept)
    rows[:, :2] = np.column_stack(similarity_moments(vectors, mean, covariance))
    return Background(mean, covariance, rows)


def _signals(
    rule: AnswerRule, vectors: Float32, lexical: LexicalIndex | None, documents: Sequence[Document]
) -> Signals:
    signals = rule.score.signals
    moments = None if signals.moments is None else mean_and_covariance(vectors)
    words = None if signals.words is None or lexical is None else DocumentWords.of_documents(lexical, documents)
    return Signals(signals.k, moments, words)


def _golden_queries(
    release: Release, retriever: Retriever, documents: Sequence[Document]
) -> tuple[list[GoldenQuery], int]:
    """Return the golden queries with their answers from the remaining documents, and how many answers changed."""
    # A query that only erased documents answer is removed as well, because its text is about them. If an answer is the
    # same, its recorded scores are kept, so that they do not depend on this machine. Scores with a lexical part change
    # if only erased documents have a word of the query.
    remaining = {name for document in documents for name in (document.id, document.document_id)}
    answerable = [query for query in release.golden if not query.relevant or not remaining.isdisjoint(query.relevant)]
    if not answerable:
        raise InputError(
            f"{release.manifest.release_id}: every golden query is answered by these documents alone, so none would be "
            "left to check the release; calibrate again without them"
        )
    top = search(retriever, answerable)
    queries, changed = [], 0
    equal = differences(top, answerable) <= release.manifest.golden_tolerance
    for query, row, positions, scores in zip(
        answerable, equal, top.positions.tolist(), top.scores.tolist(), strict=True
    ):
        names = [documents[position].id for position in positions]
        answer = {} if names == query.documents and row else {"documents": names, "scores": scores}
        changed += names != query.documents
        queries.append(replace(query, relevant=[name for name in query.relevant if name in remaining], **answer))
    return queries, changed


def _answer_score(stage: Retriever | SecondStageRule) -> AnswerScore | None:
    return None if stage.abstention is None else stage.abstention.score


def _known_pairs(source: Path, manifest: Manifest, documents: Sequence[Document]) -> list[KnownPair]:
    """Return the remaining pairs that check the reranker of a release with two stages."""
    record = manifest.second_stage
    if record is None:
        return []
    remaining = {document.id for document in documents}
    known = [
        pair for pair in read_pairs(source / layout.RERANKER_FOLDER / layout.KNOWN_PAIRS) if pair.document in remaining
    ]
    if record.kind == "endpoint" and not known:
        raise InputError(
            f"{manifest.release_id}: every pair that checks the reranker has one of these documents, so none would be "
            "left to notice another model at its endpoint; calibrate again without them"
        )
    return known


def _token_vectors(retriever: Retriever) -> TokenVectors | None:
    """Return the token vectors of late interaction; None of other kinds."""
    reranker = None if retriever.second is None else retriever.second.reranker
    return None if reranker is None else token_vectors_of(reranker)


def _index_recall(retriever: Retriever, queries: Sequence[GoldenQuery], depth: int | None) -> float | None:
    """Return the share of the exact top `depth` that an approximate index finds; None for an exact index."""
    index = _dense_index(retriever)
    if index.breadth is None or depth is None:
        return None
    _, vectors = retriever.read([as_query(query) for query in queries])
    exact = index.search_within(vectors, depth, DocumentSubset(np.ones(len(index), dtype=np.bool_))).positions
    approximate = index.search(vectors, depth).positions
    return float((exact[:, :, None] == approximate[:, None, :]).any(axis=2).mean())


def _copy_unchanged(source: Path, manifest: Manifest, folder: Path) -> None:
    for name in _COPIED & manifest.files.keys():
        shutil.copyfile(source / name, folder / name)
    for encoder in {name.partition("/")[0] for name in manifest.files}.intersection(layout.ENCODER_FOLDERS):
        EncoderFolder(folder / encoder).write(source / encoder)


def _draft(before: Release, erasure: ErasureRecord, retriever: Retriever, kept: NDArray[np.int64]) -> Manifest:
    """Return the manifest for the remaining documents, without strata that none of them belongs to."""
    manifest, exact, hybrid = before.manifest, _dense_index(retriever).breadth is None, words_of(retriever.index)
    # A word that only erased documents had counts as unseen, which no word weighs more than, so shares cannot rise.
    falls = exact and (retriever.abstention is None or retriever.abstention.score.is_best_result)
    strata = None if manifest.strata is None else _strata(manifest.strata, retriever.metadata)
    draft = kept_promises(manifest, strata, scores_fall=falls)
    vectors, second = _token_vectors(retriever), draft.second_stage
    if vectors is not None and second is not None:
        stored = TokenVectorsRecord.of(vectors.dimension, vectors.counts(kept.tolist()))
        second = second.model_copy(update={"token_vectors": stored})
    changes = {
        "second_stage": second,
        "taugate_version": version("taugate"),
        "data": manifest.data.model_copy(update={"documents": len(kept)}),
        "index": manifest.index.model_copy(update={"documents": len(kept)}),
        "lexical": None if hybrid is None else lexical_record(hybrid.lexical, hybrid.weight),
        "erasure": erasure,
    }
    return draft.model_copy(update=changes)


def _strata(strata: StrataRecord, metadata: Metadata) -> StrataRecord:
    column = metadata.columns.get(composed(strata.field))
    remaining = {*column.values} if column else set[SortKey]()
    kept = [stratum for stratum in strata.strata if stratum.value is None or sort_key(stratum.value) in remaining]
    other_values = [value for value in strata.other_values if sort_key(value) in remaining]
    return strata.model_copy(update={"strata": kept, "other_values": other_values})
