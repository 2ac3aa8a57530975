"""What an updated corpus is searched in: an index of the release's kind, or a new collection of its engine."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from taugate.calibration.encoding.changes import CorpusChanges, KnownVectors
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.gate.admit import readmit
from taugate.calibration.gate.baseline import Admitted, GateState, RecordedProjection, SearchTrial
from taugate.calibration.job.admission import admit_over_engine, reached
from taugate.calibration.metrics.measure import QueryPart
from taugate.calibration.progress import Stopwatch
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.update.vectors import ReleaseEncoders, encode_changes
from taugate.errors import ReleaseError
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.engines.index import EngineIndex
from taugate.retrieval.release.layout import ENCODER_FOLDER
from taugate.retrieval.release.reader import Release, load_encoder


def release_encoders(folder: Path, release: Release) -> ReleaseEncoders:
    """Load the encoders that a release was calibrated with.

    Args:
        folder: Of the release.
        release: Opened.

    Raises:
        ReleaseError: Where they answer otherwise on this machine.
    """
    manifest = release.manifest
    if release.precision != manifest.answering.precision:
        raise ReleaseError(
            f"{folder}: its {manifest.answering.precision} encoder does not answer as recorded on this machine; update "
            "it on the kind of machine that it was calibrated on"
        )
    queries, *exact = [load_encoder(folder / name, manifest, None) for name in manifest.query_encoders]
    float32 = exact[0] if exact else None
    if manifest.query_encoder is not None:
        return ReleaseEncoders(queries, load_encoder(folder / ENCODER_FOLDER, manifest, None), float32)
    return ReleaseEncoders(queries, float32 or queries, float32)


def admit_update(  # noqa: PLR0913, PLR0917 (all that an update has by now)
    dataset: Dataset,
    spool: Path,
    changes: CorpusChanges,
    release: Release,
    encoders: ReleaseEncoders,
    part: QueryPart,
    settings: CalibrationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Admitted:
    """Encode what changed, and have the gate judge again what is approximate.

    Args:
        dataset: The updated corpus with its queries.
        spool: Folder with its texts.
        changes: Since the release.
        release: Opened.
        encoders: Its own.
        part: The calibration queries.
        settings: Of the update.
        say: Told one line of progress or warning at a time.
        watch: Stopwatch whose stages grow.

    Raises:
        EncoderError: , and ReleaseError where an engine is not admitted.
        EngineUnavailable: , and ReleaseError where an engine is not admitted.
    """
    engine = reached(settings.engine)
    if engine is None:
        return _readmitted(dataset, changes, release, encoders, part, settings, say, watch)
    index = release.retriever.index
    if not isinstance(index, EngineIndex):
        raise TypeError(f"{type(index).__name__} is no collection of an engine")
    known = KnownVectors(changes.sources, index.vectors)
    exact = Encoders(encoders.float32 or encoders.queries, encoders.documents)
    return admit_over_engine(engine, spool, known, dataset, exact, part, settings, say, watch)


def _readmitted(  # noqa: PLR0913, PLR0917 (as `admit_update`)
    dataset: Dataset,
    changes: CorpusChanges,
    release: Release,
    encoders: ReleaseEncoders,
    part: QueryPart,
    settings: CalibrationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Admitted:
    """Build the index of the release's kind: exact, or approximate and admitted by the gate again."""
    manifest = release.manifest
    encoded = encode_changes(dataset, changes, release, encoders, say, watch)
    queries = [dataset.answerable[position] for position in part.members.tolist()]
    with watch.stage("index"):
        trial = SearchTrial.build(
            queries, encoded.answerable[part.members], encoded.documents, settings.k, dataset.documents.parents
        )
    projection = None
    if manifest.projection is not None and release.retriever.projection is not None:
        projection = RecordedProjection(release.retriever.projection, manifest.projection)
    exact = GateState.exact(encoders.queries, encoded, trial)
    kept = replace(
        exact.admitted,
        projection=projection,
        float32=encoders.float32,
        documents=None if manifest.query_encoder is None else encoders.documents,
        golden_tolerance=manifest.golden_tolerance,
    )
    return readmit(replace(exact, admitted=kept), part, settings, say, watch)
