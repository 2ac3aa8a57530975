"""Loads a release: verifies it, opens it, and checks its golden queries before it serves."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from taugate.errors import EncoderUnavailable, EncoderUnsupported, EngineUnavailable, ReleaseError
from taugate.release import queries as questions
from taugate.release.encoder import Precision
from taugate.release.golden import GoldenQuery, read_golden
from taugate.release.layout import FIRST_STAGE_FOLDER, GOLDEN, PROJECTION, QUESTIONS, REFERENCE, RERANKER_FOLDER
from taugate.release.manifest import Manifest
from taugate.release.names import INDEX
from taugate.release.queries import Reference
from taugate.release.verify import TrustedKeys, check_optional_files, verify_searchable
from taugate.retrieval import folders, golden
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Documents
from taugate.retrieval.encoder.encoder import EndpointAccess, ExportedEncoder, RequestedPrecision
from taugate.retrieval.engines.corpus import EngineCorpus
from taugate.retrieval.engines.engine import EngineAccess
from taugate.retrieval.index.top_k import Fields
from taugate.retrieval.rerank.endpoint import reranker_endpoint
from taugate.retrieval.retriever import Retriever
from taugate.retrieval.vectors import Projection

_log = logging.getLogger(__name__)


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


def load(  # noqa: PLR0913, PLR0917 (what a release names may be elsewhere)
    release: Path,
    threads: int | None = None,
    precision: RequestedPrecision = "auto",
    trusted: TrustedKeys | None = None,
    engine: EngineAccess = EngineAccess(),  # noqa: B008 (frozen)
    endpoint: EndpointAccess | None = None,
    open_reranker: folders.OpenReranker = reranker_endpoint,
) -> Release:
    """Verify and open a release, then check that its golden queries score as recorded.

    Args:
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
    check_optional_files(release, manifest)
    corpus = folders.CorpusFolder(release).open(manifest, engine)
    with ExitStack() as resources:
        if corpus.engine is not None:
            resources.callback(corpus.engine.close)
        second = folders.RerankerFolder(release / RERANKER_FOLDER).open(manifest, corpus, threads, open_reranker)
        if second is not None:
            resources.callback(second.close)

        def load_one(folder: Path) -> ExportedEncoder:
            encoder = folders.EncoderFolder(folder).open(manifest, threads, endpoint)
            resources.callback(encoder.close)
            return encoder

        opened = _open(release, manifest, replace(corpus, second=second), load_one, precision)
        return replace(opened, resources=resources.pop_all())


def _open(
    release: Path,
    manifest: Manifest,
    corpus: folders.Corpus,
    load_one: Callable[[Path], ExportedEncoder],
    precision: RequestedPrecision,
) -> Release:
    """Open the other parts of a release and check its golden queries."""
    index, first = corpus.index, manifest.first_stage
    projection = None
    if manifest.projection is not None:
        projection = Projection.load(release / PROJECTION, manifest.encoder.dimension, index.dimension)
    folder = release if first is manifest else release / FIRST_STAGE_FOLDER
    relevance, abstention = folders.ModelsFolder(folder).open(first, corpus)
    policy = folders.read_policy(first)
    reference = Reference.load(release / REFERENCE)
    if reference.top.shape[1] != min(policy.k, len(index)):
        raise ReleaseError(f"{release / REFERENCE}: is of another K than the policy; calibrate again")
    queries = read_golden(release / GOLDEN)
    listed = questions.read_calibration_questions(release / QUESTIONS)

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
            of_vectors=not manifest.reads_texts,
            other_encoder=encoder.sha256 != manifest.answering.sha256,
        )
        _check_golden(retriever, queries, release, encoder, manifest.golden_tolerance)
        used = encoder.config.precision
        return Release(manifest, retriever, corpus.documents, used, queries, reference, listed, corpus.engine)

    if not manifest.reads_texts:
        return open_with(folders.own_vectors(release, manifest))
    *preferred, last = folders.encoder_folders(release, manifest, precision)
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
