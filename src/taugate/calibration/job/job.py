"""One calibration, from data set to release: `calibrate` reads top to bottom in the order in which it happens."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from taugate.calibration.encoding.encoder_fit import encoder_fit, encoder_fit_warnings, trained_similarity
from taugate.calibration.encoding.source import AskedEncoder, Encoders
from taugate.calibration.gate.indexes import kinds_asked
from taugate.calibration.job.admission import admit_in_process, admit_over_engine, known_to_current, reached
from taugate.calibration.job.release import ReleaseContents, golden_queries, manifest_facts, query_outcomes
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.metrics.measure import DrawnQueries
from taugate.calibration.metrics.own_documents import max_own, own_of
from taugate.calibration.metrics.splits import MIN_CALIBRATING, held_out
from taugate.calibration.progress import Stopwatch
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
from taugate.retrieval.release.layout import ENCODER_FOLDERS, FLOAT32_FOLDER, MANIFEST
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.verify import verify

_MAX_SIMILARITIES = 50_000_000  # 200 times the default, and about 1 GB while COE and ROE are computed


def check_sizes(dataset: Dataset, settings: CalibrationSettings) -> None:
    """Raise InputError with too few queries or documents for what is asked, or too much asked of them.

    Args:
        dataset: Labelled queries and documents.
        settings: Of the calibration.
    """
    others = len(dataset.documents) - max_own(own_of(dataset.answerable + dataset.unanswerable))
    if settings.k > others:
        raise InputError(f"--k {settings.k}: the corpus has only {others} documents; give a smaller K")
    if settings.bootstraps * settings.sample_size * settings.k > _MAX_SIMILARITIES:
        raise InputError(
            f"--bootstraps {settings.bootstraps} × --sample-size {settings.sample_size} × --k {settings.k}: more than "
            f"{_MAX_SIMILARITIES:,} similarities at once; give fewer bootstraps; so many narrow no interval"
        )
    answerable = len(dataset.answerable)
    members = answerable - held_out(answerable, settings.holdout)
    if not members:
        raise InputError(
            f"--holdout {settings.holdout}: leaves none of the {answerable} answerable queries to calibrate on; "
            "label more queries or give a smaller share"
        )
    asked = settings.candidates.requested
    if asked and members < MIN_CALIBRATING:  # to judge by the gate, and to fit a projection on
        name, value = next(iter(asked.items()))
        raise InputError(
            f"--{name} {value}: needs at least {MIN_CALIBRATING} answerable queries to calibrate on, there are "
            f"{members}; label more, or leave the option out"
        )
    if "index" in asked:
        kinds_asked(settings.candidates.index, len(dataset.documents))
    if settings.rule.strata is not None:
        QueryStrata.group(dataset, settings.rule.strata)
    if settings.abstention is not None:
        settings.abstention.check(dataset)


def calibrate(
    data: str,
    releases: Path,
    asked: AskedEncoder,
    settings: CalibrationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Manifest:
    """Read a data set, measure, choose a threshold and write a release into `releases`; it is not promoted.

    One calibration at a time in a directory.

    Args:
        data: A folder or a URL.
        releases: The directory of releases.
        asked: Encoder that was asked for.
        settings: Of the calibration.
        say: Told one line of progress or warning at a time.
        watch: Stopwatch whose stages grow.

    Raises:
        InputError: ; then no release has been written.
        EncoderError: ; then no release has been written.
        EngineUnavailable: ; then no release has been written.
        ReleaseError: ; then no release has been written.
    """
    _check_releases(releases, say)
    asked.check_name(releases)
    engine = reached(settings.engine)
    with calibration_lock(releases), tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        with watch.stage("read"):
            dataset = _read(data, settings, Path(spool), say)
        for note in dataset.notes:
            say(note)
        if dataset.orphaned:  # without documents that an earlier release knew, those are the empty ones
            say(f"queries left out, as every document that answers them is left out: {dataset.orphaned:,}")
        check_sizes(dataset, settings)
        adaptation = _adaptation(Path(asked.name))
        if because := AvailableEvidence.count(
            dataset, settings.k, adaptation
        ).because:  # said before the work, which may be long
            say(f"{PROVISIONAL} {because}")
        with watch.stage("export"):
            encoders = _baseline(Encoders.load(asked.name), asked.name)
        asked.check(releases, encoders.queries)
        if adaptation is not None:
            _warn(adaptation, asked.name, dataset.split, say)
        inherited = _inherited(releases, encoders.queries, settings)
        if inherited is not None:
            settings = replace(settings, rule=settings.rule.kept_from(inherited.chosen_by))
        with watch.stage("read"):
            fit = encoder_fit(dataset, encoders.documents, encoders.queries, trained_similarity(asked.name))
        of_queries = encoders.queries.config
        for warning in encoder_fit_warnings(fit, of_queries.name, of_queries.max_length):
            say(f"warning: {warning}")
        drawn = DrawnQueries.draw(
            SamplingUnits.from_labels(clusters(dataset.answerable)), len(dataset.documents), settings
        )
        search = admit_in_process
        if engine is not None:
            known = None
            if not settings.embeddings:
                known = known_to_current(releases, encoders.documents, engine, dataset, say, watch)
            search = partial(admit_over_engine, engine, Path(spool), known)
        admitted = search(dataset, encoders, drawn.parts["calibration"], settings, say, watch)
        found = study(dataset, admitted.encoded, admitted.index, drawn, settings, watch, inherited)
        for warning in found.query_set.warnings:
            say(f"warning: {warning}")
        with watch.stage("write"):
            facts = manifest_facts(dataset, admitted, found, settings, adaptation) | {"encoder_fit": fit}
            report = render(dataset, facts, found, _parent(releases))
            contents = ReleaseContents(
                admitted,
                Path(spool),
                golden_queries(dataset, found, admitted.encoded.answerable),
                query_outcomes(dataset, found),
                found,
                report,
            )
            return writer.write(releases, facts, contents.fill)


def _read(data: str, settings: CalibrationSettings, spool: Path, say: Callable[[str], None]) -> Dataset:
    """Read the split that is calibrated on, or what people judged and asked."""
    if splits := settings.labelled_splits:
        with local_folder(data, *splits, optional=(GENERATED, TRAFFIC)) as folder:
            return read_people(folder, splits, spool, say)
    split = settings.split or default_split(data, say)
    with local_folder(data, split) as folder:
        dataset = read_dataset(folder, split, spool)
    weights = {query.weight for query in dataset.answerable + dataset.unanswerable}
    if len(weights) > 1:
        named = {HUMAN: "--labels human", TRAFFIC: "--labels human,traffic"}.get(
            split, f"--split {split} --labels human"
        )
        raise InputError(
            f"{data}: the queries of split {split} have weights, as they were not sampled alike; calibrate with "
            f"{named}, which uses the weights"
        )
    return dataset


def _baseline(encoders: Encoders, name: str) -> Encoders:
    if encoders.queries.config.precision != "float32":
        raise EncoderError(
            f"encoder {name!r}: has {encoders.queries.config.precision} weights, which encode only queries; give the "
            f"float32 encoder it was made from, the folder {FLOAT32_FOLDER} beside it in the release, and --precision"
        )
    return encoders


def _adaptation(encoder: Path) -> AdaptationRecord | None:
    """Read the record of an adapted encoder: beside the model, or in the manifest of the release that has it."""
    if (encoder.parent / MANIFEST).is_file() and encoder.name in ENCODER_FOLDERS:
        manifest = verify(encoder.parent)
        return manifest.adaptation if encoder.name in manifest.query_encoders else None
    return read_adaptation(encoder)


def _warn(adaptation: AdaptationRecord, name: str, split: str, say: Callable[[str], None]) -> None:
    """Warn of an adapted encoder that was not admitted, or that has seen the queries."""
    if not adaptation.admitted:
        say(f"warning: taugate adapt did not admit the encoder {name}: {adaptation.reason}")
    if adaptation.pairs.split == split:
        say(
            f"warning: the encoder {name} learned from the split {split}, so figures measured on its queries look too "
            "good; calibrate on a split that it did not learn from"
        )


def _inherited(releases: Path, encoder: OnnxEncoder, settings: CalibrationSettings) -> Inherited | None:
    """Read what a given threshold takes from the current release: its model of relevance.

    None where the threshold is chosen here, before the first release, and where the model is of another encoder or K.
    """
    current = None if settings.rule.tau is None else current_id(releases)
    inherited = None if current is None else Inherited.model_of(releases / current, encoder.sha256, settings.k)
    if settings.rule.policy == "probability" and settings.rule.tau is not None and inherited is None:
        raise InputError(
            f"--policy probability --tau {settings.rule.tau:g}: a probability is that of one model of relevance, and "
            f"no release with this encoder and K = {settings.k} is current to take it from; leave --tau out"
        )
    return inherited


def _parent(releases: Path) -> Manifest | None:
    """Read the promoted release's manifest, for the report.

    a broken one must not keep a new release from being written.
    """
    try:
        name = current_id(releases)
        return None if name is None else verify(releases / name)
    except (ReleaseError, OSError):
        return None


def _check_releases(releases: Path, say: Callable[[str], None]) -> None:
    """Find out now, and not after the work, what would keep a release from being written."""
    existing = next(path for path in (releases.absolute(), *releases.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise InputError(f"{existing}: is a file; name a directory for releases")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"{existing}: is not writable; name another directory, or correct its permissions")
    try:
        current_id(releases)
    except ReleaseError as error:
        say(f"warning: {error}")
