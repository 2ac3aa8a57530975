"""Folders of a release, each written and opened here: encoders, corpus, models and second stage."""

import filecmp
import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError, ReleaseError, RerankerUnavailable
from taugate.policy.abstention import AnswerRule, AnswerScore
from taugate.policy.policy import Policy, StratumThresholds
from taugate.policy.relevance import Read, ReadDocuments, Relevance
from taugate.policy.score_relevance import ScoreRelevance
from taugate.release import layout
from taugate.release.encoder import FILES
from taugate.release.files import RERANKER_FILES
from taugate.release.manifest import Manifest, ReleaseManifest
from taugate.release.names import INDEX, ReleaseFolder, disagreement
from taugate.release.search_records import KnownPair, SecondStageRecord, read_pairs, write_pairs
from taugate.retrieval.documents.filters import composed, sort_key
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Documents, DocumentStore
from taugate.retrieval.encoder.encoder import EndpointAccess, ExportedEncoder, RequestedPrecision
from taugate.retrieval.encoder.loading import OwnVectors, load_encoder
from taugate.retrieval.engines.engine import EngineAccess
from taugate.retrieval.index.lexical import LexicalIndex, index_of, word_reader
from taugate.retrieval.index.top_k import Index, Passages
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.late_interaction import LateInteraction, TokenEncoder, TokenVectors
from taugate.retrieval.rerank.stage import FIRST_SCORE, Reranker, SecondStage, SecondStageRule, TextReranker, TextScorer
from taugate.storage.folders import link_or_copy

if TYPE_CHECKING:  # loads FAISS
    from taugate.retrieval.engines.corpus import EngineCorpus

_log = logging.getLogger(__name__)
_ENDPOINT_SECONDS = 5.0  # to score the known pairs at load, before the first stage serves alone
OpenReranker = Callable[[str | None], TextScorer]  # given the model's name in requests


class EncoderFolder(ReleaseFolder):
    """An encoder: that of documents and queries, or one of queries alone."""

    def write(self, source: Path) -> None:
        """Copy the files of an exported encoder from a folder, and no others."""
        # A file that another encoder of the same release has is stored once, if the file system has hard links: a
        # tokenizer in several precisions, or the weights below a linear map.
        self.path.mkdir()
        for name in FILES:
            if (source / name).exists():  # a graph or the weights of a kernel
                others = [
                    path for folder in layout.ENCODER_FOLDERS if (path := self.path.parent / folder / name).is_file()
                ]
                equal = next((path for path in others if filecmp.cmp(source / name, path, shallow=False)), None)
                if equal is None:
                    shutil.copyfile(source / name, self.path / name)
                else:
                    link_or_copy(equal, self.path / name)

    def open(self, manifest: Manifest, threads: int | None, endpoint: EndpointAccess | None = None) -> ExportedEncoder:
        """Load the encoder."""
        encoder = load_encoder(self.path, threads, endpoint)
        record = ({layout.ENCODER_FOLDER: manifest.encoder} | manifest.query_encoders).get(self.path.name)
        if record is None or encoder.sha256 != record.sha256:
            names = ", ".join(FILES)
            raise ReleaseError(f"{self.path}: its files ({names}) are not the encoder in the manifest; calibrate again")
        if encoder.config.dimension != manifest.encoder.dimension:
            dimensions = sorted({manifest.encoder.dimension, encoder.config.dimension})
            raise ReleaseError(f"{self.path}: manifest and encoder have dimensions {dimensions}; calibrate again")
        return encoder


def own_vectors(release: Path, manifest: Manifest) -> OwnVectors:
    """Return what stands for the encoder of a release that has none."""
    encoder = OwnVectors(manifest.encoder.dimension, manifest.encoder.max_norm)
    if encoder.sha256 != manifest.encoder.sha256:
        raise disagreement(release, layout.ENCODER_FOLDER)
    return encoder


def encoder_folders(release: Path, manifest: Manifest, precision: RequestedPrecision) -> list[Path]:
    """Return the folders of the encoders that may encode queries, the preferred one first."""
    records = manifest.query_encoders
    for folder in (layout.QUERY_FOLDER, layout.FLOAT32_FOLDER):
        if any(name.startswith(f"{folder}/") for name in manifest.files) != (folder in records):
            raise disagreement(release, folder)
    folders = [release / folder for folder, record in records.items() if precision in ("auto", record.precision)]
    if not folders:
        has = " and ".join(record.precision for record in records.values())
        choices = ", ".join(get_args(RequestedPrecision))
        raise InputError(f"TAUGATE_PRECISION {precision}: the release has {has} ({choices})")
    return folders


@dataclass(frozen=True)
class Corpus:
    """The searched corpus of a release."""

    index: Index
    documents: Documents
    metadata: Metadata
    remote_passages: Passages | None = None  # passages in an engine; None if they are in the release
    read: Read | None = None  # reads documents for the relevance model from an engine; None if they are in the release
    engine: "EngineCorpus | None" = None  # the engine; None if the corpus is in the release
    words: LexicalIndex | None = None  # the index of the documents' words; None if the score has no lexical part
    second: SecondStage | None = None  # second stage; None with one stage


class StoredDocuments(Protocol):
    """Documents whose texts can be stored in a folder."""

    def save(self, folder: Path) -> None:
        """Write the files of a DocumentStore."""
        ...


class CorpusFolder(ReleaseFolder):
    """The vectors, texts, metadata and words of the documents."""

    def write(self, vectors: Index, documents: StoredDocuments, metadata: Metadata) -> None:
        """Write vectors, texts and metadata; those of an engine are not written."""
        from taugate.retrieval.index import approximate  # loads FAISS, as `open` does

        approximate.save(vectors, self.path)
        documents.save(self.path)
        if metadata.columns:
            metadata.save(self.path / layout.METADATA)

    def write_words(self, words: LexicalIndex) -> None:
        """Write the index of the words of the score; raises OSError if that fails."""
        words.save(self.path / layout.LEXICAL)

    def open(self, manifest: Manifest, access: EngineAccess) -> Corpus:
        """Open the corpus: its own files, or a collection in an engine."""
        from taugate.retrieval.engines.corpus import EngineHybridIndex, open_corpus
        from taugate.retrieval.index import approximate
        from taugate.retrieval.index.hybrid import HybridIndex

        dimension = manifest.dimension
        weight = 0.0 if manifest.lexical is None else manifest.lexical.weight
        if manifest.engine is None:
            vectors, documents = (
                approximate.load_index(self.path, manifest.index.kind, dimension),
                DocumentStore(self.path),
            )
            self._check_counts(manifest, len(vectors), len(documents))
            words = self._open_words(manifest)
            index = vectors if words is None else HybridIndex(vectors, words, weight)
            metadata = (
                Metadata.load(self.path / layout.METADATA, documents)
                if layout.METADATA in manifest.files
                else Metadata()
            )
            return Corpus(index, documents, metadata, words=words)
        self._check_counts(manifest, manifest.engine.rows)
        opened = open_corpus(manifest.engine, dimension, access)

        def read(positions: NDArray[np.int64]) -> ReadDocuments:
            rows = opened.index.read(positions)
            return ReadDocuments.of(rows.vectors, [document.encoded_text for document in rows.documents])

        words = self._open_words(manifest)
        hybrid = None if words is None else EngineHybridIndex(opened.index, words, weight)
        passages = replace(opened.passages, hybrid=hybrid)
        return Corpus(hybrid or opened.index, opened.documents, Metadata(), passages, read, opened, words)

    def _check_counts(self, manifest: Manifest, *stored: int) -> None:
        counts = {manifest.data.documents, manifest.index.documents, *stored}
        if len(counts) != 1:
            raise ReleaseError(
                f"{self.path}: {layout.MANIFEST}, {INDEX} and {layout.TEXTS} count {sorted(counts)} documents; "
                "calibrate again"
            )

    def _open_words(self, manifest: Manifest) -> LexicalIndex | None:
        record = manifest.lexical
        if record is None:
            return None
        words = LexicalIndex.load(self.path / layout.LEXICAL, manifest.index.documents)
        if (words.statistics.k1, words.statistics.b) != (record.k1, record.b):
            raise ReleaseError(f"{self.path / layout.LEXICAL}: k1 and b are not those of the manifest; calibrate again")
        return words


class ModelsFolder(ReleaseFolder):
    """What one stage knows of scores: a model of relevance, and the score by which queries are refused.

    The folder of a release has those of its last stage, FIRST_STAGE_FOLDER those of the first of two.
    """

    def write(self, relevance: Relevance | ScoreRelevance | None, answer_score: AnswerScore | None) -> None:
        """Write the models that there are, with the words of refusals; raises OSError if that fails."""
        if relevance is not None or answer_score is not None:
            self.path.mkdir(exist_ok=True)
        if relevance is not None:
            relevance.save(self.path / layout.RELEVANCE)
        if answer_score is not None:
            answer_score.save(self.path / layout.ABSTENTION)
            words = index_of(answer_score.signals.words)
            if words is not None and not (self._release / layout.LEXICAL).exists():  # those of the search are the same
                words.save(self._release / layout.LEXICAL)

    @property
    def _release(self) -> Path:
        return self.path.parent if self.path.name == layout.FIRST_STAGE_FOLDER else self.path

    def open(self, manifest: Manifest, corpus: Corpus) -> tuple[Relevance | None, AnswerRule | None]:
        """Load the models of the only stage, or of the first of two, which a manifest describes."""
        relevance, dimension = None, corpus.index.dimension
        if manifest.relevance is not None:
            count = len(corpus.index) if corpus.read is None else None
            relevance = Relevance.load(self.path / layout.RELEVANCE, dimension, count)
            relevance = relevance if corpus.read is None else relevance.reading(corpus.read)
        if manifest.answer_threshold is None:
            return relevance, None
        (score, threshold), words = manifest.answer_threshold, corpus.words
        if words is None and layout.LEXICAL in manifest.files:
            words = LexicalIndex.load(self._release / layout.LEXICAL, len(corpus.index))
        loaded = AnswerScore.load(self.path / layout.ABSTENTION, score, dimension, word_reader(corpus.documents, words))
        return relevance, AnswerRule(loaded, threshold, within_filters=_within_filters(manifest))

    def open_of_scores(
        self, manifest: ReleaseManifest, features: tuple[str, ...], components: tuple[str, ...]
    ) -> tuple[ScoreRelevance | None, AnswerRule | None]:
        """Load the models of a second stage or of a run, which know nothing but scores."""
        relevance = rule = None
        if manifest.relevance is not None:
            relevance = ScoreRelevance.load(self.path / layout.RELEVANCE, features)
        if manifest.answer_threshold is not None:
            score, threshold = manifest.answer_threshold
            loaded = AnswerScore.load(self.path / layout.ABSTENTION, score, 0, components=components)
            rule = AnswerRule(loaded, threshold, within_filters=_within_filters(manifest))
        return relevance, rule


class RerankerFolder(ReleaseFolder):
    """The second stage: its model unless that is behind an endpoint, and the pairs that check it."""

    def write(
        self,
        model: Path | None,
        known: list[KnownPair],
        token_vectors: TokenVectors | None = None,
        documents: Sequence[int] | None = None,
    ) -> None:
        """Write the files.

        Args:
            model: Folder that a model is copied from; None for an endpoint.
            token_vectors: Token vectors of late interaction; None for other kinds.
            documents: Positions of the documents whose token vectors are kept; None for all.
        """
        self.path.mkdir()
        if model is not None:
            for name in RERANKER_FILES:
                if (model / name).exists():  # there is one model of several kinds
                    shutil.copyfile(model / name, self.path / name)
        if token_vectors is not None:
            token_vectors.save(self.path / layout.TOKEN_VECTORS, documents)
        write_pairs(self.path / layout.KNOWN_PAIRS, known)

    def open(
        self, manifest: Manifest, corpus: Corpus, threads: int | None, open_reranker: OpenReranker
    ) -> SecondStage | None:
        """Load the second stage, and compare the known pairs; None if the release has one stage."""
        # An endpoint that does not give their scores is asked again later, because the first stage can answer
        # meanwhile.
        record = manifest.second_stage
        if record is None:
            return None
        relevance, rule = ModelsFolder(self.path.parent).open_of_scores(manifest, (FIRST_SCORE,), ())
        stage = SecondStageRule(record.candidates, read_policy(manifest), relevance, rule, record.first_stage_weight)
        if record.kind == "endpoint":
            reranker: Reranker = TextReranker(open_reranker(record.model), corpus.documents)
        else:
            reranker = self._open_model(record, corpus, threads)
        second = SecondStage(
            stage, reranker, corpus.documents, read_pairs(self.path / layout.KNOWN_PAIRS), record.tolerance
        )
        try:
            second.check(time.monotonic() + _ENDPOINT_SECONDS if record.kind == "endpoint" else None)
        except RerankerUnavailable as error:
            if record.kind != "endpoint":
                raise
            _log.warning("second stage not available yet: %s", error)
            second.pause()
        return second

    def _open_model(self, record: SecondStageRecord, corpus: Corpus, threads: int | None) -> Reranker:
        if record.token_vectors is None:
            cross = CrossEncoder(self.path, threads)
            self._check_digest(cross.sha256, record)
            return TextReranker(cross, corpus.documents)
        model = TokenEncoder(self.path, threads)
        self._check_digest(model.sha256, record)
        vectors = TokenVectors(self.path / layout.TOKEN_VECTORS, model.config.dimension)
        if len(vectors) != len(corpus.documents):
            path = self.path / layout.TOKEN_VECTORS
            raise ReleaseError(f"{path}: is not of the documents of this release; calibrate again")
        return LateInteraction(model, vectors)

    def _check_digest(self, sha256: str, record: SecondStageRecord) -> None:
        if sha256 != record.sha256:
            raise ReleaseError(f"{self.path}: its files are not the reranker in the manifest; calibrate again")


def _within_filters(manifest: ReleaseManifest) -> bool:
    """Return whether queries are refused within filters, too: certified limits are of whole searches."""
    return manifest.refusal is not None and manifest.refusal.is_default


def read_policy(manifest: Manifest) -> Policy:
    """Return the policy that a manifest describes."""
    record, provisional = manifest.policy, manifest.state != "calibrated"
    return Policy(record.kind, record.tau, record.k, record.metric, provisional, _stratum_thresholds(manifest))


def _stratum_thresholds(manifest: Manifest) -> StratumThresholds | None:
    if manifest.strata is None:
        return None
    taus = {record.value: record.tau for record in manifest.strata.strata if record.value is not None}
    # Earlier versions took two Unicode forms of a value for two strata; no threshold is certified for both together.
    forms = Counter(map(sort_key, (*taus, *manifest.strata.other_values)))
    alone: dict[Hashable, float] = {
        key: tau for value, tau in taus.items() if tau is not None and forms[key := sort_key(value)] == 1
    }
    return StratumThresholds(composed(manifest.strata.field), alone)
