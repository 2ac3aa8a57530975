"""One calibration, from data set to release; `calibrate` shows the steps in order."""

import os
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from taugate.calibration.encoding.encoder_fit import encoder_fit, encoder_fit_warnings, trained_similarity
from taugate.calibration.encoding.source import Encoders, RequestedEncoder
from taugate.calibration.gate.indexes import requested_kinds
from taugate.calibration.job.acceptance import (
    accept_in_process,
    accept_over_engine,
    connect_engine,
    vectors_reusable_from_current,
)
from taugate.calibration.job.release import ReleaseContents, golden_queries, manifest_facts, query_outcomes
from taugate.calibration.metrics.clusters import SamplingUnits, how_drawn
from taugate.calibration.metrics.measure import DrawnQueries
from taugate.calibration.metrics.own_documents import max_own_passages, own_passages_of
from taugate.calibration.metrics.splits import MIN_CALIBRATING, held_out
from taugate.calibration.progress import Job
from taugate.calibration.provisional.state import AvailableEvidence
from taugate.calibration.provisional.words import PROVISIONAL
from taugate.calibration.report.page import render
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.study import study
from taugate.calibration.threshold.strata import QueryStrata
from taugate.errors import EncoderError, InputError, ReleaseError
from taugate.ingestion.dataset.beir import Dataset, read_dataset
from taugate.ingestion.dataset.judgements import GENERATED, HUMAN, TRAFFIC
from taugate.ingestion.dataset.location import default_split, local_folder
from taugate.ingestion.dataset.people import read_people
from taugate.registry import writer
from taugate.registry.catalog import current_id
from taugate.registry.lock import calibration_lock
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.release.adaptation import AdaptationRecord, read_adaptation
from taugate.retrieval.release.evidence import Drawn
from taugate.retrieval.release.layout import ENCODER_FOLDERS, FLOAT32_FOLDER, MANIFEST
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.verify import verify

_MAX_SIMILARITIES = 50_000_000  # 200 times the default; about 1 GB while COE and ROE are computed


def check_sizes(dataset: Dataset, settings: CalibrationSettings) -> None:
    """Raise InputError if the data set is too small for the settings, or the settings need too much memory."""
    own_passages = own_passages_of(dataset.answerable + dataset.unanswerable)
    available = len(dataset.documents) - max_own_passages(own_passages)
    if settings.k > available:
        raise InputError(f"--k {settings.k}: the corpus has only {available} documents; give a smaller K")
    if settings.bootstraps * settings.sample_size * settings.k > _MAX_SIMILARITIES:
        raise InputError(
            f"--bootstraps {settings.bootstraps} × --sample-size {settings.sample_size} × --k {settings.k}: more than "
            f"{_MAX_SIMILARITIES:,} similarities at once; give fewer bootstraps, since more would not narrow "
            "the intervals"
        )
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
    if "index" in requested:
        requested_kinds(settings.candidates.index, len(dataset.documents))
    if settings.rule.strata is not None:
        QueryStrata.group(dataset, settings.rule.strata)
    if settings.abstention is not None:
        settings.abstention.check(dataset)


def calibrate(
    data: str,
    releases: Path,
    requested: RequestedEncoder,
    settings: CalibrationSettings,
    job: Job,
) -> Manifest:
    """Read a data set, measure, choose a threshold and write a release into `releases`, without promoting it.

    Only one calibration at a time runs in a directory. After an error, no release has been written.

    Args:
        data: A folder or a URL.
        releases: The directory of releases.
        requested: The encoder.
        settings: All other settings.
        job: Reports progress and warnings, and times the stages.

    Raises:
        InputError: If the data set or the settings cannot be used.
        EncoderError: If the encoder cannot be loaded or exported.
        EngineUnavailable: If the engine does not respond.
        ReleaseError: If the gate does not accept the engine, or a release cannot be read.
    """
    _check_releases(releases, job)
    requested.check_name(releases)
    engine = connect_engine(settings.engine)
    with calibration_lock(releases), tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        with job.stage("read"):
            dataset = _read(data, settings, Path(spool), job)
        for note in dataset.notes:
            job.report(note)
        if dataset.orphaned:
            job.report(f"queries left out because all their relevant documents are left out: {dataset.orphaned:,}")
        check_sizes(dataset, settings)
        units = _units(dataset, settings, job)
        adaptation = _adaptation(Path(requested.name))
        evidence = AvailableEvidence.count(dataset, settings.k, adaptation)
        if evidence.because:  # reported before the work, which may take long
            job.report(f"{PROVISIONAL} {evidence.because}")
        with job.stage("export"):
            encoders = _require_float32(Encoders.load(requested.name), requested.name)
        requested.check(releases, encoders.queries)
        if adaptation is not None:
            _warn_of_adaptation(adaptation, requested.name, dataset.split, job)
        settings = _on_the_scale_of_tau(releases, settings)
        inherited = _inherited(releases, encoders.queries, settings)
        if inherited is not None:
            settings = replace(settings, rule=settings.rule.kept_from(inherited.chosen_by))
        with job.stage("read"):
            fit = encoder_fit(dataset, encoders.documents, encoders.queries, trained_similarity(requested.name))
        config = encoders.queries.config
        for warning in encoder_fit_warnings(fit, config.name, config.max_length):
            job.report(f"warning: {warning}")
        drawn = DrawnQueries.draw(units, len(dataset.documents), settings)
        accept = accept_in_process
        if engine is not None:
            reusable = None
            if not settings.embeddings:
                reusable = vectors_reusable_from_current(releases, encoders.documents, engine, dataset, job)
            accept = partial(accept_over_engine, engine, Path(spool), reusable)
        accepted = accept(dataset, encoders, drawn, settings, job)
        if settings.refusal:
            accepted = accepted.with_near_misses(dataset, settings.seed, job)
        findings = study(dataset, accepted.encoded, accepted.index, drawn, settings, job, inherited)
        for warning in findings.query_set.warnings:
            job.report(f"warning: {warning}")
        if findings.refusal is not None and (left_out := findings.refusal.record.left_out):
            job.report(f"off-topic questions left out because the documents seem to answer them: {left_out:,}")
        with job.stage("write"):
            facts = manifest_facts(dataset, accepted, findings, settings, adaptation) | {"encoder_fit": fit}
            report = render(dataset, facts, findings, _parent(releases))
            contents = ReleaseContents(
                accepted,
                Path(spool),
                golden_queries(dataset, findings, accepted.encoded.answerable),
                query_outcomes(dataset, findings),
                findings,
                report,
            )
            return writer.write(releases, facts, contents.fill)


def _read(data: str, settings: CalibrationSettings, spool: Path, job: Job) -> Dataset:
    """Read the splits of `--labels` as one data set; without `--labels`, the single labelled split."""
    if splits := settings.labelled_splits:
        with local_folder(data, *splits, optional=(GENERATED, TRAFFIC)) as folder:
            return read_people(folder, splits, spool, job.report)
    split = settings.split or default_split(data, job.report)
    with local_folder(data, split) as folder:
        dataset = read_dataset(folder, split, spool)
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


def _units(dataset: Dataset, settings: CalibrationSettings, job: Job) -> SamplingUnits:
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
    return units if units.unit == "query" else units.capped(cap)


def _require_float32(encoders: Encoders, name: str) -> Encoders:
    if encoders.queries.config.precision != "float32":
        raise EncoderError(
            f"encoder {name!r}: has {encoders.queries.config.precision} weights, which encode only queries; give the "
            f"float32 encoder from which it was quantised (the folder {FLOAT32_FOLDER} beside it in the release), and "
            "--precision"
        )
    return encoders


def _adaptation(encoder: Path) -> AdaptationRecord | None:
    """Read the record of an adapted encoder, which is beside the model or in the manifest of its release."""
    if (encoder.parent / MANIFEST).is_file() and encoder.name in ENCODER_FOLDERS:
        manifest = verify(encoder.parent)
        return manifest.adaptation if encoder.name in manifest.query_encoders else None
    return read_adaptation(encoder)


def _warn_of_adaptation(adaptation: AdaptationRecord, name: str, split: str, job: Job) -> None:
    """Warn if an adapted encoder was not accepted, or was trained on these queries."""
    if not adaptation.admitted:
        job.report(f"warning: taugate adapt did not accept the encoder {name}: {adaptation.reason}")
    if adaptation.pairs.split == split:
        job.report(
            f"warning: the encoder {name} was trained on the split {split}, so figures measured on its queries look "
            "too good; calibrate on a split that it was not trained on"
        )


def _inherited(releases: Path, encoder: OnnxEncoder, settings: CalibrationSettings) -> Inherited | None:
    """Read the relevance model of the current release, for use with a given threshold (--tau).

    None if no threshold is given, if no release is current, or if its model was fitted for another encoder or K.
    """
    current = None if settings.rule.tau is None else current_id(releases)
    inherited = None if current is None else Inherited.model_of(releases / current, encoder.sha256, settings.k)
    if settings.rule.policy == "probability" and settings.rule.tau is not None and inherited is None:
        raise InputError(
            f"--policy probability --tau {settings.rule.tau:g}: needs the relevance model of the current release, but "
            f"no release with this encoder and K = {settings.k} is current; leave out --tau"
        )
    return inherited


def _on_the_scale_of_tau(releases: Path, settings: CalibrationSettings) -> CalibrationSettings:
    """Return settings whose score is that of a given threshold (--tau): that of the current release, else the cosine.

    A threshold means something else on a score with another lexical weight. A weight that is given is used.
    """
    if settings.rule.tau is None or settings.candidates.lexical != "auto":
        return settings
    current = _parent(releases)
    weight = None if current is None or current.lexical is None else current.lexical.weight
    candidates = replace(settings.candidates, lexical="off" if weight is None else weight)
    return replace(settings, candidates=candidates)


def _parent(releases: Path) -> Manifest | None:
    """Read the current release's manifest; None if it is damaged, which must not stop a calibration."""
    try:
        name = current_id(releases)
        return None if name is None else verify(releases / name)
    except (ReleaseError, OSError):
        return None


def _check_releases(releases: Path, job: Job) -> None:
    """Check, before the work, that a release can be written."""
    existing = next(path for path in (releases.absolute(), *releases.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise InputError(f"{existing}: is a file; give a directory for releases")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"{existing}: is not writable; give another directory, or correct its permissions")
    try:
        current_id(releases)
    except ReleaseError as error:
        job.report(f"warning: {error}")
