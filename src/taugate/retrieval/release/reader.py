"""Loads a release: verifies it, opens it, and checks its golden queries before it serves."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from taugate.errors import (
    EncoderUnavailable,
    EncoderUnsupported,
    EngineUnavailable,
    InputError,
    ReleaseError,
    RerankerUnavailable,
)
from taugate.retrieval.documents.filters import sort_key
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import TEXTS, Documents, DocumentStore
from taugate.retrieval.encoder.bert import Precision
from taugate.retrieval.encoder.encoder import FILES, ExportedEncoder, RequestedPrecision
from taugate.retrieval.encoder.endpoint_record import EndpointAccess
from taugate.retrieval.encoder.own_vectors import OwnVectors
from taugate.retrieval.engines.access import EngineAccess
from taugate.retrieval.engines.corpus import EngineCorpus, open_corpus
from taugate.retrieval.engines.hybrid import EngineHybridIndex
from taugate.retrieval.index import files
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.names import INDEX, VECTORS
from taugate.retrieval.index.passages import Fields, Passages
from taugate.retrieval.index.top_k import Index
from taugate.retrieval.policy.abstention import AnswerRule, AnswerScore, needs_words
from taugate.retrieval.policy.background import Read, ReadDocuments
from taugate.retrieval.policy.policy import Policy, StratumThresholds
from taugate.retrieval.policy.relevance import Relevance
from taugate.retrieval.policy.score_relevance import ScoreRelevance
from taugate.retrieval.release import golden, questions
from taugate.retrieval.release.golden import GoldenQuery
from taugate.retrieval.release.layout import (
    ABSTENTION,
    ENCODER_FOLDER,
    FIRST_STAGE_FOLDER,
    FLOAT32_FOLDER,
    GOLDEN,
    KNOWN_PAIRS,
    LEXICAL,
    MANIFEST,
    METADATA,
    PROJECTION,
    QUERY_FOLDER,
    QUESTIONS,
    REFERENCE,
    RELEVANCE,
    RERANKER_FOLDER,
)
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.query_arrays import Reference
from taugate.retrieval.release.second_stage import read_pairs
from taugate.retrieval.release.signature import TrustedKeys
from taugate.retrieval.release.verify import verify_searchable
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.endpoint import reranker_endpoint
from taugate.retrieval.rerank.reranker import Reranker
from taugate.retrieval.rerank.stage import FIRST_SCORE, SecondStage, SecondStageRule
from taugate.retrieval.retriever import Retriever
from taugate.retrieval.vectors.projection import Projection

_log = logging.getLogger(__name__)
_ENDPOINT_SECONDS = 5.0  # to score the known pairs at load, before the first stage serves alone
OpenReranker = Callable[[str | None], Reranker]  # given the model's name in requests


@dataclass(frozen=True)
class Release:
    """An open release with everything needed to serve it.

    Attributes:
        manifest: Manifest of the release.
        retriever: Answers queries; its positions are positions in `documents`.
        documents: Documents by position.
        precision: Precision of the encoder in use.
        golden: Golden queries with their recorded scores.
        reference: Similarities of the calibration queries, for comparison with live ones.
        questions: Questions of the calibration, as lines of JSON; none in releases without them.
        engine: The engine that holds vectors and texts; None if they are in the release.
        resources: What is closed with the release, such as the lock that prevents its removal.
    """

    manifest: Manifest
    retriever: Retriever
    documents: Documents
    precision: Precision
    golden: Sequence[GoldenQuery]
    reference: Reference
    questions: Sequence[bytes] = ()
    engine: EngineCorpus | None = None
    resources: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Allow the release to be removed; memory-mapped files remain readable. May wait for the disk."""
        self.resources.close()

    @property
    def metadata(self) -> Metadata:
        """The metadata of documents in this process."""
        return self.retriever.metadata

    @property
    def fields(self) -> Fields:
        """The metadata fields that filters can name."""
        return self.retriever.passages


@dataclass(frozen=True)
class _Corpus:
    """The searched corpus of a release.

    Attributes:
        index: Index of the vectors.
        documents: Documents by position.
        metadata: Metadata of the documents.
        remote_passages: Passages in an engine; None if they are in the release.
        read: Reads documents for the relevance model from an engine; None if they are in the release.
        engine: The engine; None if the corpus is in the release.
        second: Second stage; None with one stage.
    """

    index: Index
    documents: Documents
    metadata: Metadata
    remote_passages: Passages | None = None
    read: Read | None = None
    engine: EngineCorpus | None = None
    second: SecondStage | None = None


def load(  # noqa: PLR0913, PLR0917 (what a release names may be elsewhere)
    release: Path,
    threads: int | None = None,
    precision: RequestedPrecision = "auto",
    trusted: TrustedKeys | None = None,
    engine: EngineAccess = EngineAccess(),  # noqa: B008 (frozen)
    endpoint: EndpointAccess | None = None,
    open_reranker: OpenReranker = reranker_endpoint,
) -> Release:
    """Verify and open a release, then check that its golden queries score as recorded.

    Args:
        release: Folder of the release.
        threads: Threads of the encoder, by default the processors that this process may use.
        precision: Precision of the encoder. `auto` uses the calibrated encoder or, if this machine cannot run it or its
            scores differ from the recorded ones here, the float32 encoder that the release may also have.
        trusted: Keys of which one must have signed the release; None requires no signature.
        engine: How to reach the engine that the release names, by default the one that the environment names.
        endpoint: How to reach the endpoint of the encoder, if it has one, by default as the environment says.
        open_reranker: Opens the endpoint of a second stage, by default the one that the environment names.

    Raises:
        ReleaseError: If anything is not as it was written.
        EncoderError: If an encoder cannot be loaded.
        InputError: If the release has no encoder of this precision, or no engine is configured.
        EngineUnavailable: If the engine does not respond.
        EncoderUnavailable: If the endpoint of the encoder gives no vectors.
    """
    manifest = verify_searchable(release, trusted)
    _check_optional_files(release, manifest)
    corpus = _open_corpus(release, manifest, engine)
    with ExitStack() as resources:
        if corpus.engine is not None:
            resources.callback(corpus.engine.close)
        second = _load_second_stage(release, manifest, corpus, threads, open_reranker)
        if second is not None:
            resources.callback(second.close)

        def load_one(folder: Path) -> ExportedEncoder:
            encoder = load_encoder(folder, manifest, threads, endpoint)
            resources.callback(encoder.close)
            return encoder

        opened = _open(release, manifest, replace(corpus, second=second), load_one, precision)
        return replace(opened, resources=resources.pop_all())


def _open_corpus(release: Path, manifest: Manifest, access: EngineAccess) -> _Corpus:
    """Open the corpus of a release: its own files, or a collection in an engine."""
    dimension = _search_dimension(manifest)
    if manifest.engine is None:
        vectors = files.load(release, manifest.index.kind, dimension)
        documents = DocumentStore(release)
        _check_counts(release, manifest, len(vectors), len(documents))
        lexical = _load_lexical(release, manifest)
        index = vectors if lexical is None else HybridIndex(vectors, *lexical)
        metadata = Metadata.load(release / METADATA, documents) if METADATA in manifest.files else Metadata()
        return _Corpus(index, documents, metadata)
    _check_counts(release, manifest, manifest.engine.rows, manifest.engine.rows)
    opened = open_corpus(manifest.engine, dimension, access)

    def read(positions: NDArray[np.int64]) -> ReadDocuments:
        rows = opened.index.read(positions)
        return ReadDocuments.of(rows.vectors, rows.documents)

    lexical = _load_lexical(release, manifest)
    hybrid = None if lexical is None else EngineHybridIndex(opened.index, *lexical)
    passages = replace(opened.passages, hybrid=hybrid)
    return _Corpus(hybrid or opened.index, opened.documents, Metadata(), passages, read, opened)


def _open(
    release: Path,
    manifest: Manifest,
    corpus: _Corpus,
    load_one: Callable[[Path], ExportedEncoder],
    precision: RequestedPrecision,
) -> Release:
    """Open the other parts of a release and check its golden queries.

    Args:
        release: Folder of the release.
        manifest: Manifest of the release.
        corpus: Its corpus.
        load_one: Loads the encoder in a folder.
        precision: See `load`.
    """
    index, first = corpus.index, manifest.first_stage
    projection = _load_projection(release, manifest, index)
    folder = release if first is manifest else release / FIRST_STAGE_FOLDER
    relevance = _load_relevance(folder / RELEVANCE, first, corpus)
    abstention = _load_abstention(release, folder / ABSTENTION, first, corpus)
    policy = _policy(first)
    reference = Reference.load(release / REFERENCE)
    if reference.top.shape[1] != min(policy.k, len(index)):
        raise ReleaseError(f"{release / REFERENCE}: is of another K than the policy; calibrate again")
    queries = golden.read(release / GOLDEN)
    listed = questions.read(release / QUESTIONS)

    def open_with(encoder: ExportedEncoder) -> Release:
        retriever = Retriever(
            encoder,
            index,
            policy,
            relevance,
            projection,
            corpus.metadata,
            abstention,
            corpus.documents.parents,
            corpus.remote_passages,
            corpus.second,
        )
        _check_golden(retriever, queries, release, encoder, manifest.golden_tolerance)
        used = encoder.config.precision
        return Release(manifest, retriever, corpus.documents, used, queries, reference, listed, corpus.engine)

    if not manifest.reads_texts:
        return open_with(own_vectors(release, manifest))
    *preferred, last = encoder_folders(release, manifest, precision)
    for folder in preferred:
        try:
            encoder = load_one(folder)
        except EncoderUnsupported as error:
            _log.warning("%s; encoding queries with %s", error, last.name)
            continue
        try:
            return open_with(encoder)
        except EngineUnavailable:
            raise
        except ReleaseError as error:  # another processor rounds otherwise than the one of the calibration
            _log.warning("%s; encoding queries with %s", error, last.name)
    return open_with(load_one(last))


def own_vectors(release: Path, manifest: Manifest) -> OwnVectors:
    """Return what stands for the encoder of a release that has none.

    Raises:
        ReleaseError: If the manifest names another digest.
    """
    encoder = OwnVectors(manifest.encoder.dimension)
    if encoder.sha256 != manifest.encoder.sha256:
        raise _disagreement(release, ENCODER_FOLDER)
    return encoder


def encoder_folders(release: Path, manifest: Manifest, precision: RequestedPrecision) -> list[Path]:
    """Return the folders of the encoders that may encode queries, the preferred one first.

    Args:
        release: Folder of the release.
        manifest: Manifest of the release.
        precision: See `load`.

    Raises:
        ReleaseError: If manifest and files disagree.
        InputError: If the release has no encoder of this precision.
    """
    records = manifest.query_encoders
    for folder in (QUERY_FOLDER, FLOAT32_FOLDER):
        if any(name.startswith(f"{folder}/") for name in manifest.files) != (folder in records):
            raise _disagreement(release, folder)
    folders = [release / folder for folder, record in records.items() if precision in ("auto", record.precision)]
    if not folders:
        has = " and ".join(record.precision for record in records.values())
        choices = ", ".join(get_args(RequestedPrecision))
        raise InputError(f"TAUGATE_PRECISION {precision}: the release has {has} ({choices})")
    return folders


def load_encoder(
    folder: Path, manifest: Manifest, threads: int | None, endpoint: EndpointAccess | None = None
) -> ExportedEncoder:
    """Load one of the encoders of a release.

    Args:
        folder: One of `encoder_folders`, or the folder of the documents' encoder.
        manifest: Manifest of the release.
        threads: See `load`.
        endpoint: See `load`.

    Raises:
        ReleaseError: If it is not the encoder in the manifest.
        EncoderError: If it cannot be loaded.
    """
    encoder = ExportedEncoder.load(folder, threads, endpoint)
    record = ({ENCODER_FOLDER: manifest.encoder} | manifest.query_encoders).get(folder.name)
    if record is None or encoder.sha256 != record.sha256:
        names = ", ".join(FILES)
        raise ReleaseError(f"{folder}: its files ({names}) are not the encoder in the manifest; calibrate again")
    if encoder.config.dimension != manifest.encoder.dimension:
        dimensions = sorted({manifest.encoder.dimension, encoder.config.dimension})
        raise ReleaseError(f"{folder}: manifest and encoder have dimensions {dimensions}; calibrate again")
    return encoder


def _check_golden(
    retriever: Retriever, queries: Sequence[GoldenQuery], release: Path, encoder: ExportedEncoder, tolerance: float
) -> None:
    """Check the golden queries; any exception that a library raises for inconsistent parts becomes a ReleaseError."""
    try:
        golden.check(retriever, queries, tolerance)
    except (EngineUnavailable, EncoderUnavailable):
        raise
    except ReleaseError as error:
        endpoint = encoder.config.endpoint
        model = "" if endpoint is None else f"; the endpoint {endpoint.url} may have another model than then"
        raise ReleaseError(f"{release / GOLDEN}: {error}{model}") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ReleaseError(
            f"{release}: {encoder.folder.name or GOLDEN} or {INDEX} cannot answer the golden queries ({reason}); "
            "calibrate again"
        ) from error


def _check_optional_files(release: Path, manifest: Manifest) -> None:
    """Check that the release has an optional file if and only if the manifest has its record."""
    kind = manifest.index.kind
    first, two_stages = manifest.first_stage, manifest.second_stage is not None
    expected = {
        f"{FIRST_STAGE_FOLDER}/{RELEVANCE}": two_stages and first.relevance is not None,
        f"{FIRST_STAGE_FOLDER}/{ABSTENTION}": two_stages and first.answer_threshold is not None,
        f"{RERANKER_FOLDER}/{KNOWN_PAIRS}": two_stages,
        # Whether these kinds need exact vectors, their own file tells; releases of 0.2 and before have none.
        VECTORS: kind == "ivf-pq" or (kind in {"flat-int8", "hnsw"} and VECTORS in manifest.files),
        PROJECTION: manifest.projection is not None,
        RELEVANCE: manifest.relevance is not None,
        ABSTENTION: manifest.answer_threshold is not None,
        LEXICAL: manifest.lexical is not None or _has_words_for_refusals(first),
    }
    for name, is_expected in expected.items():
        if is_expected != (name in manifest.files):
            raise _disagreement(release, name)
    if manifest.relevance is None and manifest.policy.kind == "probability":
        raise ReleaseError(f"{release}: the policy is probability, but there is no {RELEVANCE}; calibrate again")


def _disagreement(release: Path, name: str) -> ReleaseError:
    return ReleaseError(f"{release}: the manifest and its files disagree on {name}; calibrate again")


def _check_counts(release: Path, manifest: Manifest, vectors: int, documents: int) -> None:
    counts = {manifest.data.documents, manifest.index.documents, vectors, documents}
    if len(counts) != 1:
        raise ReleaseError(
            f"{release}: {MANIFEST}, {INDEX} and {TEXTS} count {sorted(counts)} documents; calibrate again"
        )


def _search_dimension(manifest: Manifest) -> int:
    """Return the dimension of the searched vectors."""
    return manifest.encoder.dimension if manifest.projection is None else manifest.projection.dimension


def _load_lexical(release: Path, manifest: Manifest) -> tuple[LexicalIndex, float] | None:
    """Load the index of the words and the weight of the share; None if the score has no lexical part."""
    record = manifest.lexical
    if record is None:
        return None
    lexical = LexicalIndex.load(release / LEXICAL, manifest.index.documents)
    if (lexical.statistics.k1, lexical.statistics.b) != (record.k1, record.b):
        raise ReleaseError(f"{release / LEXICAL}: k1 and b are not those of the manifest; calibrate again")
    return lexical, record.weight


def _load_projection(release: Path, manifest: Manifest, index: Index) -> Projection | None:
    if manifest.projection is None:
        return None
    return Projection.load(release / PROJECTION, manifest.encoder.dimension, index.dimension)


def _load_relevance(path: Path, manifest: Manifest, corpus: _Corpus) -> Relevance | None:
    if manifest.relevance is None:
        return None
    dimension = corpus.index.dimension
    if corpus.read is None:
        return Relevance.load(path, dimension, len(corpus.index))
    return Relevance.load(path, dimension, None).reading(corpus.read)


def _load_second_stage(
    release: Path, manifest: Manifest, corpus: _Corpus, threads: int | None, open_reranker: OpenReranker
) -> SecondStage | None:
    """Load the second stage, and compare the known pairs.

    An endpoint that does not give their scores is asked again later, because the first stage can answer meanwhile.
    """
    record, folder = manifest.second_stage, release / RERANKER_FOLDER
    if record is None:
        return None
    relevance = abstention = None
    if manifest.relevance is not None:
        relevance = ScoreRelevance.load(release / RELEVANCE, (FIRST_SCORE,))
    if manifest.answer_threshold is not None:
        score, threshold = manifest.answer_threshold
        loaded = AnswerScore.load(release / ABSTENTION, score, 0, ())
        abstention = AnswerRule(loaded, threshold, within_filters=manifest.abstention is None)
    rule = SecondStageRule(record.candidates, _policy(manifest), relevance, abstention)
    reranker: Reranker = open_reranker(record.model) if record.kind == "endpoint" else CrossEncoder(folder, threads)
    if isinstance(reranker, CrossEncoder) and reranker.sha256 != record.sha256:
        raise ReleaseError(f"{folder}: its files are not the reranker in the manifest; calibrate again")
    second = SecondStage(rule, reranker, corpus.documents, read_pairs(folder / KNOWN_PAIRS), record.tolerance)
    try:
        second.check(None if record.kind == "cross-encoder" else time.monotonic() + _ENDPOINT_SECONDS)
    except RerankerUnavailable as error:
        if record.kind == "cross-encoder":
            raise
        _log.warning("second stage not available yet: %s", error)
        second.pause()
    return second


def _has_words_for_refusals(manifest: Manifest) -> bool:
    """Return whether a score of whole queries has the words of the documents in the file of lexical scores.

    Without that file, such a score has them in its own, which was so before scores had a lexical part.
    """
    return (
        manifest.answer_threshold is not None
        and needs_words(manifest.answer_threshold[0])
        and LEXICAL in manifest.files
    )


def _load_abstention(release: Path, path: Path, manifest: Manifest, corpus: _Corpus) -> AnswerRule | None:
    if manifest.answer_threshold is None:
        return None
    score, threshold = manifest.answer_threshold
    index, lexical = corpus.index, None
    if isinstance(index, HybridIndex):
        lexical = index.lexical
    elif LEXICAL in manifest.files:
        lexical = LexicalIndex.load(release / LEXICAL, len(index))
    loaded = AnswerScore.load(path, score, index.dimension, corpus.documents, lexical)
    return AnswerRule(loaded, threshold, within_filters=manifest.abstention is None)


def _policy(manifest: Manifest) -> Policy:
    record, provisional = manifest.policy, manifest.state == "provisional"
    return Policy(record.kind, record.tau, record.k, record.metric, provisional, _stratum_thresholds(manifest))


def _stratum_thresholds(manifest: Manifest) -> StratumThresholds | None:
    if manifest.strata is None:
        return None
    taus = {sort_key(record.value): record.tau for record in manifest.strata.strata if record.value is not None}
    return StratumThresholds(manifest.strata.field, {value: tau for value, tau in taus.items() if tau is not None})
