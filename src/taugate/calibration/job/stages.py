"""The stages of a calibration or an update of a corpus, from the vectors of a data set to a release."""

from abc import abstractmethod
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.changes import ReusableVectors
from taugate.calibration.encoding.corpus import EncodedDataset, EncodedTexts, encode_dataset
from taugate.calibration.encoding.encoder_fit import encoder_fit, encoder_fit_warnings
from taugate.calibration.encoding.endpoint_source import REPLY_TOLERANCE
from taugate.calibration.encoding.in_shards import encode_in_shards
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.engines.upload import UploadedCorpus, connect_engine
from taugate.calibration.gate.accept import accept_candidates
from taugate.calibration.gate.accepted import AcceptedSearch
from taugate.calibration.gate.engines import accept_engine
from taugate.calibration.job.contents import write_files
from taugate.calibration.job.release_stages import ReleaseStages
from taugate.calibration.job.reranking import AcceptedSecondStage
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.metrics.measure import DrawnQueries
from taugate.calibration.progress import Job
from taugate.calibration.query_set.warnings import truncation_warning
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.corpus import CorpusSearch
from taugate.calibration.study.outcomes import Calibrated
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.encoder.encoder import EncoderConfig, ExportedEncoder
from taugate.retrieval.engines.engine import EngineKind
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.release.layout import GOLDEN
from taugate.retrieval.release.manifest import DataRecord, EncoderRecord, Manifest
from taugate.retrieval.release.records import TrainedSimilarity
from taugate.retrieval.release.search_records import LexicalRecord


class CalibrationStages(ReleaseStages[Manifest, CalibrationInputs, CorpusSearch]):
    """One calibration of a corpus in progress.

    Attributes:
        spool: Folder with the texts of the documents.
        engine: Engine for the documents, None to keep them in the release.
        candidates: Largest number of results that a second stage may score; 0 with one stage.
        inputs: The data set, the division of its queries, and the settings; set by reading, like `encoders`.
        encoded: Vectors of the data set, by `encoders`.
        accepted: The search that the gate accepted.
        first_search: The search of the first stage, which is `searching` with one stage.
        second: The second stage, None with one stage.
    """

    encoders: Encoders
    encoded: EncodedTexts
    accepted: AcceptedSearch
    first_search: CorpusSearch

    def __init__(self, releases: Path, settings: CalibrationSettings, spool: Path, job: Job) -> None:
        super().__init__(releases, settings, job)
        self.spool = spool
        self.engine = connect_engine(settings.engine)
        self.corpus: UploadedCorpus | None = None
        self.second: AcceptedSecondStage | None = None
        self.candidates = 0

    def encode(self) -> Self:
        """Encode the data set in memory, or with an engine to disk, and upload it unless the engine has it.

        Raises:
            EncoderError: If the encoder fails.
            EngineUnavailable: If the engine does not respond.
        """
        dataset, job, stored = self.inputs.dataset, self.job, None
        if self.engine is None:
            self.encoded = self._encode_in_memory()
        else:
            vectors = self.settings.embeddings or self._reusable_vectors(self.engine.kind)
            self.encoded, stored = encode_in_shards(dataset, self.encoders, vectors, self.spool, job)
        truncated, config = self.encoded.truncated_documents, self.encoders.documents.config
        if truncated:
            warning = truncation_warning(truncated, len(dataset.documents), config.max_length, config.name)
            job.report(f"warning: {warning}")
        if self.engine is not None and stored is not None:
            with job.stage("upload"):
                self.corpus = UploadedCorpus.upload(self.engine, self.spool, stored, job)
        return self

    def gate(self) -> Self:
        """Choose the search for the release: exact, or what the gate accepts.

        Raises:
            EncoderError: If a precision is requested by its name, and the encoder or this machine cannot have it.
            ReleaseError: If the gate does not accept the engine.
        """
        dataset = self.inputs.dataset
        if self.corpus is None:
            accepted = self._accept_in_memory()
        else:
            accepted = accept_engine(self.inputs, self.encoders.queries, self.encoded, self.corpus, self.candidates)
            accepted = replace(accepted, documents=self.encoders.separate_document_encoder)
        if self.settings.refusal or (self.inherited is not None and self.inherited.refuses_by_default):
            accepted = accepted.with_near_misses(dataset, self.settings.seed, self.job)
        self.accepted = accepted
        self.searching = self.first_search = CorpusSearch(self.inputs, accepted.encoded, accepted.index)
        return self

    def _data(self) -> DataRecord:
        dataset, truncated = self.inputs.dataset, self.encoded.truncated_documents
        left_out = {"empty_documents": dataset.empty or None, "own_documents": dataset.own_documents or None}
        return super()._data().model_copy(update={"truncated_documents": truncated, **left_out})

    def _manifest(self) -> partial[Manifest]:
        accepted, texts = self.accepted, self.studied.texts
        if texts is None:
            raise TypeError("a corpus has texts or vectors")
        return partial(
            Manifest,
            adaptation=self.adaptation,
            encoder=_encoder_record(accepted.documents or accepted.encoder),
            accepts_vectors=self.settings.accept_vectors or None,
            query_encoder=None if accepted.documents is None else _encoder_record(accepted.encoder),
            float32_encoder=None if accepted.float32 is None else _encoder_record(accepted.float32),
            projection=None if accepted.projection is None else accepted.projection.record,
            index=accepted.index_record,
            isotropy=texts.isotropy,
            query_set=texts.query_set,
            encoder_fit=self.fit,
            engine=accepted.engine,
            lexical=LexicalRecord.of(accepted.index) if isinstance(accepted.index, HybridIndex) else None,
            gate=list(accepted.gate),
            skipped=list(accepted.skipped) or None,
            second_stage=None if self.second is None else self.second.record,
            golden=GOLDEN,
            golden_tolerance=max(accepted.golden_tolerance, _tolerance_of_replies(accepted.encoder.config)),
        )

    def _write_files(self, calibrated: Calibrated, report: str, release: Path) -> None:
        write_files(self.accepted, calibrated, self.first_search.queries, self.spool, report, release)
        if self.second is not None:
            self.second.write(release)

    def _begin(self, dataset: Dataset, units: SamplingUnits, trained_similarity: TrainedSimilarity | None) -> None:
        """Check how the encoder fits the texts, and draw the queries of both parts."""
        config = self.encoders.queries.config
        self.fit = None
        if dataset.vectors is None:
            with self.job.stage("export"):
                self.fit = encoder_fit(dataset, self.encoders.documents, self.encoders.queries, trained_similarity)
        for warning in encoder_fit_warnings(self.fit, config.name, config.query_window):
            self.job.report(f"warning: {warning}")
        drawn = DrawnQueries.draw(units, len(dataset.documents), self.settings)
        self.inputs = CalibrationInputs(dataset, drawn, self.settings, self.job)

    def _encode_in_memory(self) -> EncodedDataset:
        encoder = self.encoders.queries
        cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
        separate = self.encoders.separate_document_encoder
        return encode_dataset(self.inputs.dataset, encoder, cache, self.job, separate)

    def _accept_in_memory(self) -> AcceptedSearch:
        accepted = accept_candidates(self.inputs, self.encoders.queries, self.encoded)
        return replace(accepted, documents=self.encoders.separate_document_encoder)

    @abstractmethod
    def _reusable_vectors(self, kind: EngineKind) -> ReusableVectors | None:
        """Return vectors of the current release's collection that need not be encoded again; None if there are none."""


def _tolerance_of_replies(config: EncoderConfig) -> float:
    """Return the tolerance for scores of an endpoint, which may reply to the same text with another vector."""
    return 0.0 if config.endpoint is None else REPLY_TOLERANCE * config.max_cosine_difference


def _encoder_record(encoder: ExportedEncoder) -> EncoderRecord:
    return EncoderRecord(**encoder.config.model_dump(), sha256=encoder.sha256)
