"""The stages of a calibration or an update of a corpus before the study: each takes and returns typed records."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from taugate.calibration.acceptance.accepted import AcceptedSearch
from taugate.calibration.acceptance.engines import accept_engine
from taugate.calibration.encoding.changes import ReusableVectors
from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.encoding.encoder_fit import encoder_fit, encoder_fit_warnings
from taugate.calibration.encoding.in_shards import encode_in_shards
from taugate.calibration.encoding.sharded_vectors import ShardedVectors
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.engines.upload import UploadedCorpus
from taugate.calibration.job.reranking import AcceptedSecondStage
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.progress import Job
from taugate.calibration.query_set.warnings import truncation_warning
from taugate.calibration.study.corpus import CorpusSearch
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.reranked import RerankedSearch
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.engines.engine import Engine
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.manifest import ReleaseManifest
from taugate.retrieval.release.records import EncoderFitRecord, TrainedSimilarity


@dataclass(frozen=True)
class Read:
    """A labelled data set that was read, with all that decides how it is calibrated.

    Attributes:
        inputs: The data set, the division of its queries, and the settings.
        encoders: The encoders of the data set.
        fit: How the encoder suits the texts; None if it does.
        spool: Folder with the texts of the documents.
        engine: Engine for the documents, None to keep them in the release.
        candidates: Largest number of results that a second stage may score; 0 with one stage.
        parent: Manifest of the current release, None if there is none that can be read.
        inherited: Parts of an earlier release to reuse, None to fit and choose everything now.
        adaptation: Record of the encoder's adaptation, None if it was not adapted.
    """

    inputs: CalibrationInputs
    encoders: Encoders
    fit: EncoderFitRecord | None
    spool: Path
    engine: Engine | None
    candidates: int
    parent: ReleaseManifest | None
    inherited: Inherited | None
    adaptation: AdaptationRecord | None

    @property
    def job(self) -> Job:
        """Reports progress and warnings, and times the stages."""
        return self.inputs.job

    @property
    def refuses(self) -> bool:
        """Whether queries may be refused by default, which takes near misses to choose or to measure ρ."""
        return self.inputs.settings.refuses or (self.inherited is not None and self.inherited.refuses_by_default)


def check_fit(
    dataset: Dataset, encoders: Encoders, trained_similarity: TrainedSimilarity | None, job: Job
) -> EncoderFitRecord | None:
    """Check how the encoder fits the texts, and warn if it does not; None if it does."""
    fit, config = None, encoders.queries.config
    if dataset.vectors is None:
        with job.stage("export"):
            fit = encoder_fit(dataset, encoders.documents, encoders.queries, trained_similarity)
    for warning in encoder_fit_warnings(fit, config.name, config.query_window):
        job.report(f"warning: {warning}")
    return fit


@dataclass(frozen=True)
class EncodedData:
    """The vectors of a data set.

    Attributes:
        texts: Vectors of the data set, by its encoders.
        corpus: The corpus in an engine; None if it is in memory.
    """

    texts: EncodedTexts
    corpus: UploadedCorpus | None = None


def encode_data(
    read: Read, in_memory: Callable[[], EncodedTexts], reusable: Callable[[Engine], ReusableVectors | None]
) -> EncodedData:
    """Encode the data set in memory, or with an engine to disk, and upload it unless the engine has it.

    Args:
        read: The data set.
        in_memory: Encodes it in memory.
        reusable: Returns vectors of the current release's collection that need not be encoded again, None without any.

    Raises:
        EncoderError: If the encoder fails.
        EngineUnavailable: If the engine does not respond.
    """
    dataset, settings, job = read.inputs.dataset, read.inputs.settings, read.job
    stored: ShardedVectors | None = None
    if read.engine is None:
        texts = in_memory()
    else:
        vectors = settings.embeddings or reusable(read.engine)
        texts, stored = encode_in_shards(dataset, read.encoders, vectors, read.spool, job)
    truncated, config = texts.truncated_documents, read.encoders.documents.config
    if truncated:
        warning = truncation_warning(truncated, len(dataset.documents), config.max_length, config.name)
        job.report(f"warning: {warning}")
    if read.engine is None or stored is None:
        return EncodedData(texts)
    with job.stage("upload"):
        return EncodedData(texts, UploadedCorpus.upload(read.engine, read.spool, stored, job))


@dataclass(frozen=True)
class Accepted:
    """The search of a release.

    Attributes:
        search: The first stage as the gate accepted it.
        first: The search of the first stage.
        second: The second stage, None with one stage.
    """

    search: AcceptedSearch
    first: CorpusSearch
    second: AcceptedSecondStage | None = None

    @property
    def searching(self) -> CorpusSearch | RerankedSearch:
        """The search that is studied: of both stages, or of the only one."""
        return self.first if self.second is None else self.second.searching


def accept_search(read: Read, encoded: EncodedData, in_memory: Callable[[], AcceptedSearch]) -> Accepted:
    """Choose the search for the release: exact, or what is accepted in place of it.

    Args:
        read: The data set.
        encoded: Its vectors.
        in_memory: Chooses the search of vectors in memory.

    Raises:
        EncoderError: If a precision is requested by its name, and the encoder or this machine cannot have it.
        ReleaseError: If the engine is not accepted.
    """
    inputs, encoders = read.inputs, read.encoders
    if encoded.corpus is None:
        search = in_memory()
    else:
        search = accept_engine(inputs, encoders.queries, encoded.texts, encoded.corpus, read.candidates)
    search = replace(search, documents=encoders.separate_document_encoder)
    if read.refuses:
        search = search.with_near_misses(inputs.dataset, inputs.settings.seed, read.job)
    return Accepted(search, CorpusSearch(inputs, search.encoded, search.index))
