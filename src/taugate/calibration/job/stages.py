"""The stages of a calibration or an update of a corpus, from the vectors of a data set to the files of a release."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.acceptance.accept import accept_engine
from taugate.calibration.acceptance.baseline import AcceptedSearch
from taugate.calibration.encoding.cache import ReusableVectors
from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.encoding.encoder_fit import encoder_fit, encoder_fit_warnings
from taugate.calibration.encoding.sharded_vectors import ShardedVectors, encode_in_shards
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.engines.upload import UploadedCorpus
from taugate.calibration.inherited import Inherited
from taugate.calibration.job.reranking import AcceptedSecondStage
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.progress import Job
from taugate.calibration.query_set.warnings import truncation_warning
from taugate.calibration.relevance.probes import LabelledSearch
from taugate.calibration.study.corpus import CorpusSearch
from taugate.calibration.study.outcomes import (
    Calibrated,
    calibration_questions,
    drift_reference,
    evidence_of,
    golden_rows,
    query_outcomes,
)
from taugate.calibration.study.reranked import RerankedSearch
from taugate.data.beir import Dataset
from taugate.evidence.ranking import JudgedQueries
from taugate.release import queries
from taugate.release.adaptation import AdaptationRecord
from taugate.release.files import MeasuredFolder
from taugate.release.golden import GoldenQuery
from taugate.release.layout import (
    ENCODER_FOLDER,
    EVIDENCE,
    FLOAT32_FOLDER,
    OUTCOMES,
    PROJECTION,
    QUERY_FOLDER,
    QUESTIONS,
    REFERENCE,
)
from taugate.release.manifest import ReleaseManifest
from taugate.release.records import EncoderFitRecord, TrainedSimilarity
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.engines.engine import Engine
from taugate.retrieval.folders import ModelsFolder
from taugate.retrieval.index.hybrid import vector_index
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.loading import CorpusFolder, EncoderFolder


def write_files(
    accepted: AcceptedSearch, calibrated: Calibrated, search: LabelledSearch, spool: Path, report: str, release: Path
) -> None:
    """Write every file of a release except its manifest.

    Args:
        accepted: The search that the gate accepted.
        calibrated: The study and its policy.
        search: The labelled queries with their results.
        spool: Folder to copy the texts from.
        report: The report as HTML.
        release: Empty folder to write into.

    Raises:
        OSError: If a file cannot be written.
    """
    if search.dataset.vectors is None:
        EncoderFolder(release / ENCODER_FOLDER).write((accepted.documents or accepted.encoder).folder)
        if accepted.documents is not None:
            EncoderFolder(release / QUERY_FOLDER).write(accepted.encoder.folder)
        if accepted.float32 is not None:
            EncoderFolder(release / FLOAT32_FOLDER).write(accepted.float32.folder)
    corpus = CorpusFolder(release)
    if accepted.engine is None:
        documents = DocumentStore(spool)
        corpus.write(vector_index(accepted.index), documents, Metadata.of(documents))
    if accepted.lexical_part is not None:
        corpus.write_words(accepted.lexical_part.words)
    ModelsFolder(release).write(
        None if calibrated.estimated is None else calibrated.estimated.relevance,
        None if calibrated.answer_rule is None else calibrated.answer_rule.score,
    )
    drift_reference(calibrated, calibrated.policy).save(release / REFERENCE)
    query_outcomes(calibrated, calibrated.policy).save(release / OUTCOMES)
    evidence_of(calibrated).save(release / EVIDENCE)
    queries.write_calibration_questions(release / QUESTIONS, calibration_questions(calibrated))
    if accepted.projection is not None:
        accepted.projection.projection.save(release / PROJECTION)
    MeasuredFolder(release).write(_golden_queries(search, calibrated.parts["calibration"].members), report)


def _golden_queries(search: LabelledSearch, members: NDArray[np.int64]) -> list[GoldenQuery]:
    """Take evenly spaced calibration queries with their top-K as the service returns them.

    The calibration excludes a query's own document from its results; the service, which has no query ids, does not.
    """
    dataset, judged, top = search.dataset, search.judged, search.judged.top
    rows = golden_rows(members)
    golden = TopK(top.scores[rows], top.positions[rows])
    if any(dataset.answerable[row].own_passages for row in rows.tolist()):
        golden = search.index.search(search.encoded.answerable[rows], top.scores.shape[1])
    own = None if dataset.vectors is None else dataset.vectors.of_texts([query.text for query in dataset.answerable])
    return [
        GoldenQuery(
            text=dataset.answerable[row].text,
            relevant=_relevant_ids(dataset, judged, row),
            documents=[dataset.documents[position].id for position in positions],
            scores=scores,
            vector=None if own is None else own[row].tolist(),
        )
        for row, positions, scores in zip(rows.tolist(), golden.positions.tolist(), golden.scores.tolist(), strict=True)
    ]


def _relevant_ids(dataset: Dataset, judged: JudgedQueries, row: int) -> list[str]:
    """List the ids of a query's relevant documents, or of single chunks if the qrels name chunks, and of its hits.

    A relevant document appears with its own id, not with those of all its chunks.
    """
    query, documents = dataset.answerable[row], dataset.documents
    chunks = query.chunks or {}
    document_ids = [documents[position].document_id for position in query.relevant if position not in chunks]
    passages = [*chain.from_iterable(chunks.values()), *judged.top.positions[row][judged.relevant[row]].tolist()]
    return [*dict.fromkeys([*document_ids, *(documents[position].id for position in passages)])]


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
