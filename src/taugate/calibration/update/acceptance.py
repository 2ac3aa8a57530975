"""The search of an updated corpus: an index of the release's kind, or a new collection of its engine."""

from dataclasses import replace
from pathlib import Path

from taugate.calibration.encoding.changes import CorpusChanges, ReusableVectors
from taugate.calibration.encoding.corpus import with_words
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.gate.accept import accept_updated_index
from taugate.calibration.gate.baseline import AcceptedSearch, GateState, LexicalPart, RecordedProjection, SearchTrial
from taugate.calibration.job.acceptance import accept_over_engine, connect_engine
from taugate.calibration.metrics.measure import DrawnQueries
from taugate.calibration.progress import Job
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.update.vectors import ReleaseEncoders, encode_changes
from taugate.errors import ReleaseError
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.engines.hybrid import collection_index
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.release.layout import ENCODER_FOLDER
from taugate.retrieval.release.reader import Release, load_encoder
from taugate.retrieval.vectors.similarity import require_in_memory


def release_encoders(folder: Path, release: Release) -> ReleaseEncoders:
    """Load the encoders that a release was calibrated with.

    Args:
        folder: Folder of the release.
        release: The open release.

    Raises:
        ReleaseError: If they give other results on this machine.
    """
    manifest = release.manifest
    if release.precision != manifest.answering.precision:
        raise ReleaseError(
            f"{folder}: on this machine its {manifest.answering.precision} encoder does not give the recorded results; "
            "update it on the kind of machine that it was calibrated on"
        )
    queries, *exact = [load_encoder(folder / name, manifest, None) for name in manifest.query_encoders]
    float32 = exact[0] if exact else None
    if manifest.query_encoder is not None:
        return ReleaseEncoders(queries, load_encoder(folder / ENCODER_FOLDER, manifest, None), float32)
    return ReleaseEncoders(queries, float32 or queries, float32)


def accept_update(  # noqa: PLR0913, PLR0917 (needs everything that the update has computed)
    dataset: Dataset,
    spool: Path,
    changes: CorpusChanges,
    release: Release,
    encoders: ReleaseEncoders,
    drawn: DrawnQueries,
    settings: CalibrationSettings,
    job: Job,
) -> AcceptedSearch:
    """Encode the changed texts, and have the gate test an approximate search again.

    Args:
        dataset: The updated corpus with its queries.
        spool: Folder with its texts.
        changes: Changes since the release.
        release: The open release.
        encoders: Its encoders.
        drawn: All answerable queries, with their division.
        settings: Settings of the update.
        job: Reports progress and warnings, and times the stages.

    Raises:
        EncoderError: If the encoder fails.
        EngineUnavailable: If the engine does not respond.
        ReleaseError: If the gate does not accept the engine.
    """
    engine = connect_engine(settings.engine)
    if engine is None:
        return _accept_index(dataset, changes, release, encoders, drawn, settings, job)
    index = collection_index(release.retriever.index)
    if index is None:
        raise TypeError(f"{type(release.retriever.index).__name__} is no collection of an engine")
    reusable = ReusableVectors(changes.sources, index.vectors)
    exact = Encoders(encoders.float32 or encoders.queries, encoders.documents)
    return accept_over_engine(engine, spool, reusable, dataset, exact, drawn, settings, job)


def _accept_index(  # noqa: PLR0913, PLR0917 (as `accept_update`)
    dataset: Dataset,
    changes: CorpusChanges,
    release: Release,
    encoders: ReleaseEncoders,
    drawn: DrawnQueries,
    settings: CalibrationSettings,
    job: Job,
) -> AcceptedSearch:
    """Build the index of the release's kind: exact, or approximate and tested by the gate again.

    A lexical part keeps its weight, k1 and b, and is computed from the words of the updated corpus.
    """
    manifest = release.manifest
    encoded = encode_changes(dataset, changes, release, encoders, job)
    lexical, before = None, release.retriever.index
    with job.stage("index"):
        if isinstance(before, HybridIndex):
            texts = (document.encoded_text for document in dataset.documents)
            lexical = LexicalPart(before.lexical.of_other_texts(texts), before.weight)
            encoded = with_words(encoded, dataset)
        trial = SearchTrial.build(
            dataset.answerable,
            encoded.answerable,
            require_in_memory(encoded.documents),
            settings.k,
            dataset.documents.parents,
            lexical,
        )
    projection = None
    if manifest.projection is not None and release.retriever.projection is not None:
        projection = RecordedProjection(release.retriever.projection, manifest.projection)
    exact = GateState.exact(encoders.queries, encoded, trial)
    inherited = replace(
        exact.accepted,
        projection=projection,
        float32=encoders.float32,
        documents=None if manifest.query_encoder is None else encoders.documents,
        golden_tolerance=manifest.golden_tolerance,
    )
    return accept_updated_index(replace(exact, accepted=inherited), drawn, settings, job)
