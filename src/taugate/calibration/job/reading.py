"""Reads the labelled data of a calibration, and has the stages that every calibration shares."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar, cast

from taugate.calibration.acceptance.cheaper_search import check_index_trainable
from taugate.calibration.encoding.endpoint_source import REPLY_TOLERANCE
from taugate.calibration.encoding.input_options import InputOptions
from taugate.calibration.inherited import Inherited
from taugate.calibration.job.stages import Accepted, EncodedData, Read, write_files
from taugate.calibration.metrics.clusters import SamplingUnits, how_drawn
from taugate.calibration.metrics.documents import MIN_CALIBRATING, chance_of_a_hit, held_out
from taugate.calibration.metrics.measure import StudyInputs
from taugate.calibration.metrics.ranking import max_own_passages, own_passages_of
from taugate.calibration.progress import Job
from taugate.calibration.provisional import AvailableEvidence, calibration_record
from taugate.calibration.report.page import render
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.decide import Decided, decide
from taugate.calibration.study.outcomes import Calibrated, checked_answers, drift_reference, seen_hits
from taugate.calibration.study.run import RunInputs
from taugate.calibration.study.study import Study, study
from taugate.calibration.threshold.strata import QueryStrata
from taugate.drift.alarm import sensitivity
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset, read_dataset, read_people
from taugate.ingestion.dataset.judgements import GENERATED, HUMAN, TRAFFIC
from taugate.ingestion.dataset.labelled_queries import LabelledQueries
from taugate.ingestion.dataset.location import default_split, local_folder
from taugate.registry import writer
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.engines.engine import external
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.evidence import Drawn, DriftRecord
from taugate.retrieval.release.layout import GOLDEN, REFERENCE
from taugate.retrieval.release.manifest import (
    DataFile,
    DataRecord,
    EncoderRecord,
    Manifest,
    ReleaseManifest,
    RetrieverRecord,
    RunManifest,
)
from taugate.retrieval.release.outcome_records import BootstrapRecord
from taugate.retrieval.release.records import CalibrationRecord, CheckedAnswers
from taugate.retrieval.release.search_records import LexicalRecord
from taugate.retrieval.release.state import UpdateRecord, WithdrawnRecord
from taugate.retrieval.release.summary import summary_of

_MAX_SIMILARITIES = 50_000_000  # 200 times the default; about 1 GB while COE and ROE are computed

M = TypeVar("M", bound=ReleaseManifest)


def check_sizes(dataset: Dataset, settings: CalibrationSettings) -> None:
    """Raise InputError if the data set is too small for the settings, or the settings need too much memory."""
    own_passages = own_passages_of(dataset.answerable + dataset.unanswerable)
    available = len(dataset.documents) - max_own_passages(own_passages)
    if settings.k > available:
        raise InputError(f"--k {settings.k}: the corpus has only {available} documents; give a smaller K")
    check_bootstraps(settings)
    check_calibrating(dataset, settings)
    if "index" in settings.candidates.requested:
        check_index_trainable(settings.candidates.index, len(dataset.documents))
    if settings.rule.strata is not None:
        QueryStrata.group(dataset, settings.rule.strata)


def check_bootstraps(settings: CalibrationSettings) -> None:
    """Raise InputError if the bootstraps of the settings need too much memory."""
    if settings.bootstraps * settings.sample_size * settings.k > _MAX_SIMILARITIES:
        raise InputError(
            f"--bootstraps {settings.bootstraps} × --sample-size {settings.sample_size} × --k {settings.k}: more than "
            f"{_MAX_SIMILARITIES:,} similarities at once; give fewer bootstraps, since more would not narrow "
            "the intervals"
        )


def check_calibrating(dataset: LabelledQueries, settings: CalibrationSettings) -> None:
    """Raise InputError if there are too few labelled queries for the settings."""
    answerable = len(dataset.answerable)
    calibrating = answerable - held_out(answerable, settings.holdout)
    if not calibrating:
        raise InputError(
            f"--holdout {settings.holdout}: leaves none of the {answerable} answerable queries to calibrate on; "
            "label more queries or give a smaller share"
        )
    requested = settings.candidates.requested
    if requested and calibrating < MIN_CALIBRATING:  # the gate needs them, and so does fitting a projection
        name, value = next(iter(requested.items()))
        raise InputError(
            f"--{name} {value}: needs at least {MIN_CALIBRATING} answerable queries to calibrate on, there are "
            f"{calibrating}; label more, or leave the option out"
        )
    if settings.abstention is not None:
        settings.abstention.check(dataset)


def read_labelled(
    data: str, settings: CalibrationSettings, spool: Path, job: Job, *, own_vectors: bool = False
) -> Dataset:
    """Read the splits of `--labels` as one data set; without `--labels`, the single labelled split.

    With `own_vectors`, the vectors that come with the data set are read, too.
    """
    if splits := settings.labelled_splits:
        with local_folder(data, *splits, optional=(GENERATED, TRAFFIC), own_vectors=own_vectors) as folder:
            return read_people(folder, splits, spool, job.report, own_vectors=own_vectors)
    split = settings.split or default_split(data, job.report)
    with local_folder(data, split, own_vectors=own_vectors) as folder:
        dataset = read_dataset(folder, split, spool, own_vectors=own_vectors, relevant_from=settings.relevant_from)
    weights = {query.weight for query in dataset.answerable + dataset.unanswerable}
    if len(weights) > 1:
        option = {HUMAN: "--labels human", TRAFFIC: "--labels human,traffic"}.get(
            split, f"--split {split} --labels human"
        )
        raise InputError(
            f"{data}: the queries of split {split} have weights, because they were sampled unevenly; calibrate with "
            f"{option}, which uses the weights"
        )
    return dataset


def without_encoder(settings: CalibrationSettings, input_options: InputOptions, job: Job) -> CalibrationSettings:
    """Return settings for a data set that comes with vectors, and tell what they leave out.

    Raises:
        InputError: If an option needs an encoder.
    """
    for option, needs_one in {
        f"--precision {settings.candidates.precision}": settings.candidates.precision in {"int8", "bfloat16"},
        f"--engine {settings.engine}": external(settings.engine) is not None,
        "--query-prompt, --document-prompt and --max-length": replace(input_options, similarity=None) != InputOptions(),
    }.items():
        if needs_one:
            raise InputError(f"{option}: needs an encoder, but the data set comes with vectors; leave it out")
    if settings.refuses:
        job.report(
            "warning: no query is refused as a whole, because the questions that choose when to refuse need an "
            "encoder; label unanswerable queries and give --max-answered to refuse by those"
        )
    candidates = settings.candidates
    if candidates.precision == "auto":
        candidates = replace(candidates, precision="float32")
    return replace(settings, refuse="off", candidates=candidates)


def sampling_units(dataset: LabelledQueries, settings: CalibrationSettings, job: Job) -> SamplingUnits:
    """Return the sampling units of the answerable queries, and tell what is assumed if it costs evidence.

    Raises:
        InputError: If a cap is requested for queries that were drawn one by one.
    """
    labels, cap = how_drawn(dataset), settings.rule.count_at_most
    drawn: Drawn | None = None if settings.drawn == "auto" else settings.drawn
    if settings.drawn == "auto" and labels == "queries":
        drawn = labels
    units = SamplingUnits.of_queries(dataset.answerable, drawn)
    if drawn == "queries" and labels == "documents":
        job.report(
            f"warning: --drawn queries: the queries of split {dataset.split} were made from documents, so what is "
            "certified may not hold; leave the option out"
        )
    if drawn == "queries" and cap is not None:
        raise InputError(
            f"--count-at-most {cap}: the queries were drawn one by one, so each counts as one; leave the option out, "
            "or give --drawn documents"
        )
    if units.unit == "document" and (drawn, labels) == (None, None) and settings.rule.statement is not None:
        job.report(
            "queries about the same document count as one draw, because the labels do not say how they were drawn; if "
            "they were drawn one by one, such as from a log, --drawn queries certifies more"
        )
    if units.unit == "document":
        return units.capped(cap)
    if cap is not None:
        job.report(
            f"--count-at-most {cap} changes nothing: so few queries share a document that each counts as one draw"
        )
    return units


@dataclass(frozen=True)
class DecidedRelease(Decided):
    """The policy with what refuses queries, and the evidence for both. Fields are as in the manifest."""

    calibration: CalibrationRecord | None
    checked: CheckedAnswers | None
    drift: DriftRecord


def decide_release(
    inputs: StudyInputs, studied: Study, inherited: Inherited | None = None, adaptation: AdaptationRecord | None = None
) -> DecidedRelease:
    """Choose the threshold, and measure it; `adaptation` is that of the encoder.

    Raises:
        InputError: If the requested rule cannot be applied to the data.
    """
    dataset, settings = inputs.dataset, inputs.settings
    decided = decide(studied, inputs, inherited)
    evidence = AvailableEvidence.count(dataset, settings.k, adaptation)
    chance = chance_of_a_hit(dataset.answerable, dataset.parents, dataset.passages, settings.k)
    reference, adjusted = drift_reference(studied, decided.policy), settings.rule.tau is not None
    return DecidedRelease(
        **vars(decided),
        calibration=calibration_record(seen_hits(studied), evidence, chance, adjusted=adjusted),
        checked=checked_answers(studied, decided.policy),
        drift=sensitivity(reference, settings.overlap_percentile),
    )


@dataclass(frozen=True)
class Calibration:
    """A calibration of a corpus, stage by stage, before anything is written."""

    read: Read
    encoded: EncodedData
    accepted: Accepted
    studied: Study
    decided: DecidedRelease

    @classmethod
    def of(cls, read: Read, encoded: EncodedData, accepted: Accepted) -> "Calibration":
        """Study the queries by the accepted search, and decide.

        Raises:
            InputError: If the requested rule cannot be applied to the data.
        """
        studied = study(read.inputs, accepted.searching, read.inherited)
        decided = decide_release(read.inputs, studied, read.inherited, read.adaptation)
        return cls(read, encoded, accepted, studied, decided)

    def manifest(self, update: UpdateRecord | None = None, withdrawn: list[WithdrawnRecord] | None = None) -> Manifest:
        """Return the manifest of the release, which lacks id, times and files."""
        read, search, texts, second = self.read, self.accepted.search, self.studied.texts, self.accepted.second
        if texts is None:
            raise TypeError("a corpus has texts or vectors")
        dataset, settings, config = read.inputs.dataset, read.inputs.settings, search.encoder.config
        # An endpoint may reply to the same text with another vector.
        of_replies = 0.0 if config.endpoint is None else REPLY_TOLERANCE * config.max_cosine_difference
        counts = {
            "truncated_documents": self.encoded.texts.truncated_documents,
            "empty_documents": dataset.empty or None,
            "own_documents": dataset.own_documents or None,
        }
        manifest = partial(
            Manifest,
            adaptation=read.adaptation,
            encoder=_encoder_record(search.documents or search.encoder),
            accepts_vectors=settings.accept_vectors or None,
            query_encoder=None if search.documents is None else _encoder_record(search.encoder),
            float32_encoder=None if search.float32 is None else _encoder_record(search.float32),
            projection=None if search.projection is None else search.projection.record,
            index=search.index_record,
            isotropy=texts.isotropy,
            query_set=texts.query_set,
            encoder_fit=read.fit,
            engine=search.engine,
            lexical=None if search.lexical_part is None else LexicalRecord.of(*search.lexical_part),
            gate=list(search.gate),
            skipped=list(search.skipped) or None,
            second_stage=None if second is None else second.record,
            golden=GOLDEN,
            golden_tolerance=max(search.golden_tolerance, of_replies),
            update=update,
            withdrawn=withdrawn or None,
        )
        return _completed(manifest, read.inputs, self.decided, _data(dataset).model_copy(update=counts))

    def write(self, releases: Path, manifest: Manifest) -> Manifest:
        """Write the release, without promoting it; returns its manifest.

        Raises:
            OSError: If the release cannot be written; partial files are removed.
        """

        def fill(calibrated: Calibrated, report: str, release: Path) -> None:
            accepted = self.accepted
            write_files(accepted.search, calibrated, accepted.first.queries, self.read.spool, report, release)
            if accepted.second is not None:
                accepted.second.write(release)

        return write_release(releases, manifest, self.studied, fill, self.read.parent, self.read.job)


def run_manifest(inputs: RunInputs, decided: DecidedRelease, retriever: RetrieverRecord) -> RunManifest:
    """Return the manifest of a calibration on a run, which lacks id, times and files."""
    data, off_topic = _data(inputs.dataset), inputs.off_topic
    if off_topic is not None:
        data = data.model_copy(update={"sha256": {**data.sha256, "off_topic": off_topic.sha256}})
    return _completed(partial(RunManifest, retriever=retriever), inputs, decided, data)


def _completed(manifest: partial[M], inputs: StudyInputs, decided: DecidedRelease, data: DataRecord) -> M:
    """Add to the fields of one kind of release those that all have."""
    draft = manifest(
        release_id="",
        created_at="",
        taugate_version=version("taugate"),
        parent=None,
        data=data,
        bootstrap=BootstrapRecord.model_validate(inputs.settings, from_attributes=True),
        evidence=inputs.units.record,
        reference=REFERENCE,
        files={},
        **vars(decided),
    )
    return draft.model_copy(update={"summary": summary_of(draft)})


def write_release(
    releases: Path,
    draft: M,
    studied: Study,
    fill: Callable[[Calibrated, str, Path], None],
    parent: ReleaseManifest | None,
    job: Job,
) -> M:
    """Write a release, without promoting it; returns its manifest.

    Args:
        releases: The directory of releases.
        draft: The manifest, which lacks id, times and files.
        studied: The study.
        fill: Writes every file of the release except its manifest into an empty folder, given the report.
        parent: Manifest of the current release, None if there is none that can be read.
        job: Times the stage.

    Raises:
        OSError: If the release cannot be written; partial files are removed.
    """
    with job.stage("write"):
        calibrated = Calibrated(**vars(studied), manifest=draft)
        files = partial(fill, calibrated, render(calibrated, parent, job.command))
        return writer.write(releases, draft, files, parent=None if parent is None else parent.release_id)


def _data(dataset: LabelledQueries) -> DataRecord:
    """Describe the data set."""
    answerable, unanswerable = len(dataset.answerable), len(dataset.unanswerable)
    return DataRecord(
        name=dataset.name,
        split=dataset.split,
        documents=dataset.passages,
        queries=answerable + unanswerable,
        answerable=answerable,
        unanswerable=unanswerable,
        truncated_documents=0,
        sha256=cast("dict[DataFile, str]", {**dataset.sha256}),
        relevant_from=dataset.relevant_from,
    )


def _encoder_record(encoder: ExportedEncoder) -> EncoderRecord:
    return EncoderRecord(**encoder.config.model_dump(), sha256=encoder.sha256)
