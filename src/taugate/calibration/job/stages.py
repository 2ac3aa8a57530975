"""The stages that a calibration and an update share, from the vectors of a data set to a release."""

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.changes import ReusableVectors
from taugate.calibration.encoding.corpus import EncodedDataset, EncodedTexts, encode_dataset
from taugate.calibration.encoding.encoder_fit import encoder_fit, encoder_fit_warnings
from taugate.calibration.encoding.in_shards import encode_in_shards
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.engines.upload import EngineCorpus, connect_engine
from taugate.calibration.gate.accept import accept_candidates
from taugate.calibration.gate.accepted import AcceptedSearch
from taugate.calibration.gate.engines import accept_engine
from taugate.calibration.job.contents import write_files
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.documents import chance_of_a_hit
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.metrics.measure import DrawnQueries
from taugate.calibration.progress import Job
from taugate.calibration.provisional.state import AvailableEvidence, calibration_record
from taugate.calibration.query_set.warnings import truncation_warning
from taugate.calibration.report.page import render
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.decide import decide
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.outcomes import Calibrated, drift_reference, seen_hits, summary
from taugate.calibration.study.study import Study, study
from taugate.drift.sensitivity import sensitivity
from taugate.ingestion.dataset.beir import Dataset
from taugate.registry import writer
from taugate.retrieval.engines.engine import EngineKind
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.layout import GOLDEN, REFERENCE
from taugate.retrieval.release.manifest import BootstrapRecord, Manifest
from taugate.retrieval.release.records import TrainedSimilarity


class CalibrationStages(ABC):
    """One calibration in progress. Every stage after reading adds its records to the manifest.

    Attributes:
        releases: The directory of releases.
        spool: Folder with the texts of the documents.
        job: Reports progress and warnings, and times the stages.
        engine: Engine for the documents, None to keep them in the release.
        inputs: The data set, the division of its queries, and the settings; set by reading, like `encoders`.
        inherited: Parts of an earlier release to reuse, None to fit and choose everything now.
        adaptation: Record of the encoder's adaptation, None if it was not adapted.
        encoded: Vectors of the data set, by `encoders`.
        records: Records of the manifest, by field.
        parent: Manifest of the current release, None if there is none that can be read.
    """

    inputs: CalibrationInputs
    encoders: Encoders
    encoded: EncodedTexts
    accepted: AcceptedSearch
    studied: Study

    def __init__(self, releases: Path, settings: CalibrationSettings, spool: Path, job: Job) -> None:
        self.releases, self.settings, self.spool, self.job = releases, settings, spool, job
        self.engine = connect_engine(settings.engine)
        self.corpus: EngineCorpus | None = None
        self.inherited: Inherited | None = None
        self.adaptation: AdaptationRecord | None = None
        self.parent: Manifest | None = None
        self.records: dict[str, Any] = {}

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
                self.corpus = EngineCorpus.upload(self.engine, self.spool, stored, job)
        self.records["data"] = _data_facts(dataset, truncated)
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
            accepted = accept_engine(self.inputs, self.encoders.queries, self.encoded, self.corpus)
            accepted = replace(accepted, documents=self.encoders.separate_document_encoder)
        if self.settings.refusal or (self.inherited is not None and self.inherited.refusal is not None):
            accepted = accepted.with_near_misses(dataset, self.settings.seed, self.job)
        self.accepted = accepted
        self.records |= accepted.records
        return self

    def study(self) -> Self:
        """Search for the labelled queries, and score them.

        Raises:
            InputError: If the requested rule cannot be applied to the data.
        """
        self.studied = study(self.inputs, self.accepted.encoded, self.accepted.index, self.inherited)
        self.records |= self.studied.records
        return self

    def decide(self) -> Self:
        """Choose the threshold, and measure it.

        Raises:
            InputError: If the requested rule cannot be applied to the data.
        """
        dataset, k = self.inputs.dataset, self.settings.k
        decided = decide(self.studied, self.inputs, self.inherited)
        policy = decided["policy"]
        evidence = AvailableEvidence.count(dataset, k, self.adaptation)
        chance = chance_of_a_hit(dataset.answerable, dataset.documents.parents, len(dataset.documents), k)
        reference = drift_reference(self.studied, policy)
        self.records |= decided | {
            "calibration": calibration_record(seen_hits(self.studied), evidence, chance),
            "summary": summary(self.studied, policy),
            "drift": sensitivity(reference, self.settings.overlap_percentile),
        }
        return self

    @property
    def calibrated(self) -> Calibrated:
        """The study with the manifest so far, which lacks id, times and files."""
        draft = Manifest(release_id="", created_at="", parent=None, files={}, **self.records)
        return Calibrated(**vars(self.studied), manifest=draft)

    def write(self) -> Manifest:
        """Write the release, without promoting it; returns its manifest.

        Raises:
            OSError: If the release cannot be written; partial files are removed.
        """
        with self.job.stage("write"):
            calibrated = self.calibrated
            report = render(calibrated, self.parent)
            fill = partial(write_files, self.accepted, calibrated, self.spool, report)
            parent = None if self.parent is None else self.parent.release_id
            return writer.write(self.releases, self.records, fill, parent=parent)

    def _begin(self, dataset: Dataset, units: SamplingUnits, trained_similarity: TrainedSimilarity | None) -> None:
        """Check how the encoder fits the texts, and draw the queries of both parts."""
        config = self.encoders.queries.config
        with self.job.stage("read"):
            fit = encoder_fit(dataset, self.encoders.documents, self.encoders.queries, trained_similarity)
        for warning in encoder_fit_warnings(fit, config.name, config.max_length):
            self.job.report(f"warning: {warning}")
        drawn = DrawnQueries.draw(units, len(dataset.documents), self.settings)
        self.inputs = CalibrationInputs(dataset, drawn, self.settings, self.job)
        self.records |= {
            "taugate_version": version("taugate"),
            "bootstrap": {name: getattr(self.settings, name) for name in BootstrapRecord.model_fields},
            "encoder_fit": fit,
            "adaptation": self.adaptation,
            "golden": GOLDEN,
            "reference": REFERENCE,
        }

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


def _data_facts(dataset: Dataset, truncated: int) -> dict[str, Any]:
    answerable, unanswerable = len(dataset.answerable), len(dataset.unanswerable)
    return {
        "name": dataset.name,
        "split": dataset.split,
        "documents": len(dataset.documents),
        "queries": answerable + unanswerable,
        "answerable": answerable,
        "unanswerable": unanswerable,
        "truncated_documents": truncated,
        "empty_documents": dataset.empty or None,
        "own_documents": dataset.own_documents or None,
        "sha256": dataset.sha256,
    }
