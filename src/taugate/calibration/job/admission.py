"""From a data set to what answers its queries: encoded and admitted by the gate, in this process or over an engine."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.changes import CorpusChanges, CorpusDigests, KnownVectors
from taugate.calibration.encoding.corpus import EncodedTexts, encode_dataset
from taugate.calibration.encoding.in_shards import encode_in_shards
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.engines.stored import JOB_ACCESS, stored_documents
from taugate.calibration.engines.upload import engine_record, ensure_uploaded
from taugate.calibration.gate.admit import admit
from taugate.calibration.gate.baseline import Admitted
from taugate.calibration.gate.engines import admit_engine
from taugate.calibration.metrics.measure import QueryPart
from taugate.calibration.progress import Stopwatch
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

_ENGINE_ANSWER = 30.0  # seconds for an engine to say that it is there


def reached(kind: EngineChoice) -> Engine | None:
    """Return the engine that was asked for, once it has answered; None for faiss, which is none."""
    if kind == "faiss":
        return None
    engine = engine_from_environment(kind)
    engine.names(time.monotonic() + _ENGINE_ANSWER)
    return engine


def admit_in_process(
    dataset: Dataset,
    encoders: Encoders,
    part: QueryPart,
    settings: CalibrationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Admitted:
    """Encode the data set, and choose the index that goes into the release.

    Args:
        dataset: Data set that is calibrated on.
        encoders: In float32.
        part: The calibration queries.
        settings: Of the calibration.
        say: Told one line of progress or warning at a time.
        watch: Stopwatch whose stages grow.
    """
    encoder = encoders.queries
    cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
    encoded = encode_dataset(dataset, encoder, cache, say, watch, encoders.of_documents_alone)
    _warn_of_truncation(encoded, encoders.documents, len(dataset.documents), say)
    admitted = admit(dataset, encoded, encoder, part, settings, say, watch)
    return replace(admitted, documents=encoders.of_documents_alone)


def admit_over_engine(  # noqa: PLR0913, PLR0917 (as `admit_in_process`, and where)
    engine: Engine,
    spool: Path,
    known: KnownVectors | None,
    dataset: Dataset,
    encoders: Encoders,
    part: QueryPart,
    settings: CalibrationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Admitted:
    """Encode the data set to disk, upload it unless it is there, and judge the engine.

    Args:
        engine: That is to hold the documents.
        spool: With their texts.
        known: Vectors that are not encoded again, None for none. The others are those of `admit_in_process`.

    Raises:
        EngineUnavailable: , and ReleaseError where the engine is not admitted.
    """
    encoded, vectors = encode_in_shards(dataset, encoders, settings.embeddings, spool, say, watch, known)
    _warn_of_truncation(encoded, encoders.documents, len(dataset.documents), say)
    with watch.stage("upload"):
        record = engine_record(engine.kind, spool, vectors, watch)
        ensure_uploaded(engine, record, spool, vectors, say, watch)
    admitted = admit_engine(dataset, encoded, vectors, encoders.queries, engine, record, part, settings, say, watch)
    return replace(admitted, documents=encoders.of_documents_alone)


def known_to_current(
    releases: Path,
    encoder: OnnxEncoder,
    engine: Engine,
    dataset: Dataset,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> KnownVectors | None:
    """Compare a data set with the current release, where the same encoder filled a collection of this engine.

    An engine has no cache of embeddings beside it: its collection is one.

    Args:
        releases: The releases directory.
        encoder: Of the new release's documents.
        engine: That is asked. The others are those of `admit_in_process`.

    Returns:
        The vectors that are there already, None where there are none to be had, which keeps nobody from encoding.

    Raises:
        EngineUnavailable: .
    """
    try:
        current = current_id(releases)
        manifest = None if current is None else verify(releases / current)
    except (ReleaseError, OSError):  # `calibrate` warns of it
        return None
    if manifest is None or manifest.engine is None or manifest.engine.kind != engine.kind:
        return None
    if (manifest.encoder.sha256, manifest.projection) != (encoder.sha256, None):
        return None
    record = manifest.engine
    try:
        index = open_corpus(record, record.dimension, JOB_ACCESS).index
        old = CorpusDigests.of(stored_documents(index, record, watch))
    except EngineUnavailable:
        raise
    except ReleaseError as error:
        say(f"warning: all documents are encoded again, as the vectors of {current} cannot be read: {error}")
        return None
    return KnownVectors(CorpusChanges.between(old, CorpusDigests.of(dataset.documents)).sources, index.vectors)


def _warn_of_truncation(
    encoded: EncodedTexts, encoder: OnnxEncoder, documents: int, say: Callable[[str], None]
) -> None:
    if truncated := encoded.truncated_documents:
        config = encoder.config
        say(f"warning: {truncation_warning(truncated, documents, config.max_length, config.name)}")
