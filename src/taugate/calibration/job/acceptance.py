"""Encode a data set and have the gate accept how it is searched, in this process or over an engine."""

import time
from dataclasses import replace
from pathlib import Path

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.changes import CorpusChanges, CorpusDigests, ReusableVectors
from taugate.calibration.encoding.corpus import EncodedTexts, encode_dataset
from taugate.calibration.encoding.in_shards import encode_in_shards
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.engines.stored import JOB_ACCESS, stored_documents
from taugate.calibration.engines.upload import engine_record, ensure_uploaded
from taugate.calibration.gate.accept import accept_candidates
from taugate.calibration.gate.baseline import AcceptedSearch
from taugate.calibration.gate.engines import accept_engine
from taugate.calibration.metrics.measure import DrawnQueries
from taugate.calibration.progress import Job
from taugate.calibration.query_set.warnings import truncation_warning
from taugate.calibration.settings.settings import CalibrationSettings, EngineChoice
from taugate.errors import EngineUnavailable, ReleaseError
from taugate.ingestion.dataset.beir import Dataset
from taugate.registry.catalog import current_id
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.engines.connect import engine_from_environment
from taugate.retrieval.engines.corpus import open_corpus
from taugate.retrieval.engines.engine import Engine
from taugate.retrieval.release.verify import verify

_CONNECT_TIMEOUT = 30.0  # seconds


def connect_engine(kind: EngineChoice) -> Engine | None:
    """Connect to the engine and check that it responds; None for faiss, which runs in this process."""
    if kind == "faiss":
        return None
    engine = engine_from_environment(kind)
    engine.names(time.monotonic() + _CONNECT_TIMEOUT)
    return engine


def accept_in_process(
    dataset: Dataset,
    encoders: Encoders,
    drawn: DrawnQueries,
    settings: CalibrationSettings,
    job: Job,
) -> AcceptedSearch:
    """Encode the data set, and choose the index for the release.

    Args:
        dataset: The data set.
        encoders: Float32 encoders.
        drawn: All answerable queries, with their division.
        settings: Settings of the calibration.
        job: Reports progress and warnings, and times the stages.
    """
    encoder = encoders.queries
    cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
    encoded = encode_dataset(dataset, encoder, cache, job, encoders.separate_document_encoder)
    _warn_of_truncation(encoded, encoders.documents, len(dataset.documents), job)
    accepted = accept_candidates(dataset, encoded, encoder, drawn, settings, job)
    return replace(accepted, documents=encoders.separate_document_encoder)


def accept_over_engine(  # noqa: PLR0913, PLR0917 (the parameters of `accept_in_process`, and the engine's)
    engine: Engine,
    spool: Path,
    reusable: ReusableVectors | None,
    dataset: Dataset,
    encoders: Encoders,
    drawn: DrawnQueries,
    settings: CalibrationSettings,
    job: Job,
) -> AcceptedSearch:
    """Encode the data set to disk, upload it unless the engine has it, and test the engine's search.

    Args:
        engine: The engine for the documents.
        spool: Folder with their texts.
        reusable: Vectors that need not be encoded again.
        dataset: As for `accept_in_process`, like the other parameters.
        encoders: Float32 encoders.
        drawn: All answerable queries, with their division.
        settings: Settings of the calibration.
        job: Reports progress and warnings, and times the stages.

    Raises:
        EngineUnavailable: If the engine does not respond.
        ReleaseError: If the gate does not accept the engine.
    """
    encoded, vectors = encode_in_shards(dataset, encoders, settings.embeddings, spool, job, reusable)
    _warn_of_truncation(encoded, encoders.documents, len(dataset.documents), job)
    with job.stage("upload"):
        record = engine_record(engine.kind, spool, vectors, job)
        ensure_uploaded(engine, record, spool, vectors, job)
    accepted = accept_engine(dataset, encoded, vectors, encoders.queries, engine, record, drawn, settings, job)
    return replace(accepted, documents=encoders.separate_document_encoder)


def vectors_reusable_from_current(
    releases: Path,
    encoder: OnnxEncoder,
    engine: Engine,
    dataset: Dataset,
    job: Job,
) -> ReusableVectors | None:
    """Find vectors to reuse in the current release, if its collection is in this engine and by the same encoder.

    With an engine there is no cache of embeddings; its collection serves as one.

    Args:
        releases: The releases directory.
        encoder: Document encoder of the new release.
        engine: The engine.
        dataset: The data set.
        job: Reports progress and warnings, and times the stages.

    Returns:
        The vectors; None if there are none, in which case all documents are encoded.

    Raises:
        EngineUnavailable: If the engine does not respond.
    """
    try:
        current = current_id(releases)
        manifest = None if current is None else verify(releases / current)
    except (ReleaseError, OSError):  # `calibrate` warns about it
        return None
    if manifest is None or manifest.engine is None or manifest.engine.kind != engine.kind:
        return None
    if (manifest.encoder.sha256, manifest.projection) != (encoder.sha256, None):
        return None
    record = manifest.engine
    try:
        index = open_corpus(record, record.dimension, JOB_ACCESS).index
        old = CorpusDigests.of(stored_documents(index, record, job))
    except EngineUnavailable:
        raise
    except ReleaseError as error:
        job.report(f"warning: encoding all documents again, because the vectors of {current} cannot be read: {error}")
        return None
    return ReusableVectors(CorpusChanges.between(old, CorpusDigests.of(dataset.documents)).sources, index.vectors)


def _warn_of_truncation(encoded: EncodedTexts, encoder: OnnxEncoder, documents: int, job: Job) -> None:
    if truncated := encoded.truncated_documents:
        config = encoder.config
        job.report(f"warning: {truncation_warning(truncated, documents, config.max_length, config.name)}")
