"""One calibration, from a data set to a release; `run_stages` shows the stages in order."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Self

from taugate.calibration.acceptance.accept import accept_candidates
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode_dataset, query_texts
from taugate.calibration.encoding.encoder_fit import trained_similarity
from taugate.calibration.encoding.encoder_options import announce, input_warnings, prompts_in_words
from taugate.calibration.encoding.rerankers import RequestedReranker
from taugate.calibration.encoding.source import Encoders, RequestedEncoder
from taugate.calibration.engines import connect_engine, vectors_reusable_from_current
from taugate.calibration.job import stages
from taugate.calibration.job.release_stages import Calibration
from taugate.calibration.job.reranking import most_candidates, try_second_stage
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.progress import Job
from taugate.calibration.provisional import PROVISIONAL, AvailableEvidence
from taugate.calibration.settings import CalibrationSettings
from taugate.calibration.study.study import Inherited
from taugate.data.beir import Dataset
from taugate.data.generation.near_misses import near_misses
from taugate.data.vectors import DatasetVectors
from taugate.errors import EncoderError, InputError, ReleaseError
from taugate.evidence.measure import DrawnQueries
from taugate.evidence.rules import GateSettings
from taugate.registry.catalog import current_id
from taugate.registry.history import calibration_lock
from taugate.release.adaptation import AdaptationRecord, read_adaptation
from taugate.release.layout import ENCODER_FOLDERS, FLOAT32_FOLDER, MANIFEST
from taugate.release.manifest import Manifest, ReleaseManifest
from taugate.release.verify import verify, verify_searchable
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.engines.engine import Engine
from taugate.retrieval.vectors import max_norm_above, were_normalized


@dataclass(frozen=True)
class CalibrationRequest:
    """A data set to calibrate, with an encoder and settings that the user requested."""

    data: str
    releases: Path
    encoder: RequestedEncoder
    settings: CalibrationSettings
    engine: Engine | None  # engine for the documents, None to keep them in the release
    reranker: RequestedReranker | None  # the second stage to try; None for one stage

    @classmethod
    def check(
        cls, data: str, releases: Path, encoder: RequestedEncoder, settings: CalibrationSettings, job: Job
    ) -> Self:
        """Check, before any work, that a release can be written, and find the engine and the reranker."""
        check_releases(releases, job)
        encoder.check_name(releases)
        engine, choice = connect_engine(settings.engine), settings.candidates.rerank
        name = None if encoder.is_own else encoder.name
        reranker = None if choice == "off" else RequestedReranker.find(choice, name, releases)
        if reranker is not None and encoder.is_own:
            job.report("the second stage reads texts: requests need the text of the query beside its vector")
        if reranker is None and choice != "off":
            job.report("no second stage: neither the encoder's folder nor the current release has a reranker")
        return cls(data, releases, encoder, settings, engine, reranker)


def calibrate(
    data: str, releases: Path, requested: RequestedEncoder, settings: CalibrationSettings, job: Job
) -> Manifest:
    """Read a data set, measure, choose a threshold and write a release into `releases`, without promoting it.

    Only one calibration at a time runs in a directory. After an error, no release has been written.

    Raises:
        InputError: If the data set or the settings cannot be used.
        EncoderError: If the encoder cannot be loaded or exported.
        EngineUnavailable: If the engine does not respond.
        ReleaseError: If the engine is not accepted, or a release cannot be read.
    """
    request = CalibrationRequest.check(data, releases, requested, settings, job)
    with tempfile.TemporaryDirectory(prefix="taugate-") as spool, calibration_lock(releases):
        calibration = run_stages(request, Path(spool), job)
        return calibration.write(releases, calibration.manifest())


def run_stages(request: CalibrationRequest, spool: Path, job: Job) -> Calibration:
    """Run all stages of a calibration but the last, which writes the release; `spool` is an empty folder."""
    read = read_data(request, spool, job)
    dataset, encoders = read.inputs.dataset, read.encoders
    cache = EmbeddingCache.of(encoders.queries)
    encoded = stages.encode_data(
        read,
        lambda: encode_dataset(dataset, encoders.queries, cache, job, encoders.separate_document_encoder),
        lambda engine: vectors_reusable_from_current(read.parent, encoders.documents, engine.kind, dataset, job),
    )
    accepted = stages.accept_search(
        read, encoded, lambda: accept_candidates(read.inputs, encoders.queries, encoded.texts)
    )
    calibration = Calibration.of(read, encoded, accept_second_stage(request, read, accepted))
    studied = calibration.studied
    for warning in [] if studied.texts is None else studied.texts.query_set.warnings:
        job.report(f"warning: {warning}")
    if studied.refusal is not None and (left_out := studied.refusal.record.left_out):
        job.report(f"off-topic questions left out because the documents seem to answer them: {left_out:,}")
    return calibration


def read_data(request: CalibrationRequest, spool: Path, job: Job) -> stages.Read:
    """Read the data set into the empty folder `spool`, and load the encoder."""
    requested, releases, settings = request.encoder, request.releases, request.settings
    parent = current_manifest(releases)
    with job.stage("read"):
        dataset = stages.read_labelled(request.data, settings, spool, job, own_vectors=requested.is_own)
    queries = len(dataset.answerable) + len(dataset.unanswerable)
    job.describe("read", f"Read {len(dataset.documents):,} documents and {queries:,} queries")
    for note in dataset.notes:
        job.report(note)
    if dataset.orphaned:
        job.report(f"warning: queries left out because all their relevant documents are left out: {dataset.orphaned:,}")
    stages.check_sizes(dataset, settings)
    units = stages.sampling_units(dataset, settings, job)
    adaptation = _adaptation(Path(requested.name))
    evidence = AvailableEvidence.count(dataset, settings.k, adaptation)
    if evidence.because:  # reported before the work, which may take long
        job.report(f"{PROVISIONAL} {evidence.because}")
    if dataset.vectors is None:
        encoders = _load_encoders(requested, job)
    else:
        settings = stages.without_encoder(settings, requested.input_options, job)
        vectors, encoders = _own_vectors(dataset.vectors, requested, job)
        dataset = replace(dataset, vectors=vectors)
    requested.check(releases, encoders.queries)
    if adaptation is not None:
        _warn_of_adaptation(adaptation, requested.name, dataset.split, job)
    settings = _on_the_scale_of_tau(parent, settings)
    inherited = _inherited(releases, encoders.queries, settings)
    if inherited is not None:
        settings = replace(settings, rule=settings.rule.kept_from(inherited.chosen_by))
    by_dot = encoders.queries.config.similarity == "dot"
    trained = None if requested.is_own or by_dot else trained_similarity(requested.name)
    fit = stages.check_fit(dataset, encoders, trained, job)
    inputs = CalibrationInputs(dataset, DrawnQueries.draw(units, len(dataset.documents), settings), settings, job)
    documents = () if settings.embeddings else (document.encoded_text for document in dataset.documents)
    announce(encoders.queries, documents, _queries(dataset, settings), job)
    candidates = 0 if request.reranker is None else most_candidates(settings)
    return stages.Read(inputs, encoders, fit, spool, request.engine, candidates, parent, inherited, adaptation)


def _load_encoders(requested: RequestedEncoder, job: Job) -> Encoders:
    """Load the encoder, and say what it reads."""
    with job.stage("export"):
        encoders = Encoders.load(requested.name, requested.input_options, requested.endpoint_options)
        config = _require_float32(encoders, requested.name).queries.config
    job.report(prompts_in_words(config))
    _report_similarity(encoders, requested, job)
    for warning in input_warnings(config):
        job.report(f"warning: {warning}")
    return encoders


def _own_vectors(vectors: DatasetVectors, requested: RequestedEncoder, job: Job) -> tuple[DatasetVectors, Encoders]:
    """Return the vectors of a data set as they are compared, and what stands for their encoders."""
    max_norm, longest = None, float(vectors.lengths.max())
    if requested.input_options.similarity == "dot" and not were_normalized(vectors.lengths / longest):
        max_norm = max_norm_above(longest)
        vectors = vectors.for_inner_product(max_norm)
    encoders = Encoders.of_vectors(vectors.documents.shape[1], max_norm)
    _report_similarity(encoders, requested, job)
    return vectors, encoders


def _report_similarity(encoders: Encoders, requested: RequestedEncoder, job: Job) -> None:
    """Say how texts are compared, if that is not by the cosine of the model's vectors."""
    max_norm = encoders.queries.config.max_norm
    if max_norm is not None:
        job.report(
            "queries and documents are compared by the dot product: a score is that of the query with length 1 and "
            f"the document, divided by {max_norm:g}"
        )
    elif requested.input_options.similarity == "dot":
        job.report(
            "warning: --similarity dot: all vectors have the same length, so the dot product ranks like the "
            "cosine, which is used"
        )


def accept_second_stage(request: CalibrationRequest, read: stages.Read, accepted: stages.Accepted) -> stages.Accepted:
    """Add a second stage to the search if one is requested, and it is accepted or named."""
    search = accepted.search
    if request.reranker is None:
        if not search.gate and read.inputs.settings.candidates.gate != GateSettings():
            read.job.report("warning: --margin and --gate-confidence change nothing: no other search is tried")
        return accepted
    tried, second = try_second_stage(read.inputs, accepted.first, request.reranker, read.spool)
    return replace(accepted, search=replace(search, gate=(*search.gate, *tried)), second=second)


def _queries(dataset: Dataset, settings: CalibrationSettings) -> Iterator[str]:
    """Yield the texts of all queries that a calibration encodes."""
    yield from chain.from_iterable(query_texts(dataset).values())
    yield from dataset.off_topic_texts
    if settings.refuses:
        yield from (question.text for question in near_misses(dataset, settings.seed))


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
        manifest = verify_searchable(encoder.parent)
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


def _inherited(releases: Path, encoder: ExportedEncoder, settings: CalibrationSettings) -> Inherited | None:
    """Read the relevance model of the current release, for use with a given threshold (--tau).

    None if no threshold is given, if no release is current, or if its model was fitted for another encoder or K.
    """
    current = None if settings.rule.tau is None else current_id(releases)
    inherited = None if current is None else Inherited.model_of(releases / current, encoder.sha256, settings.k)
    score, tau = settings.rule.score, settings.rule.tau
    if score is not None and score.needs_model and tau is not None and inherited is None:
        raise InputError(
            f"--policy {score.kind} --tau {tau:g}: needs the relevance model of the current release, but "
            f"no release with this encoder and K = {settings.k} is current; leave out --tau"
        )
    return inherited


def _on_the_scale_of_tau(current: ReleaseManifest | None, settings: CalibrationSettings) -> CalibrationSettings:
    """Return settings whose score is that of a given threshold (--tau): that of the current release, else the cosine.

    A threshold means something else on a score with another lexical weight. A weight that is given is used.
    """
    if settings.rule.tau is None or settings.candidates.lexical != "auto":
        return settings
    searchable = None if current is None else current.searchable
    lexical = None if searchable is None else searchable.lexical
    candidates = replace(settings.candidates, lexical="off" if lexical is None else lexical.weight)
    return replace(settings, candidates=candidates)


def current_manifest(releases: Path) -> ReleaseManifest | None:
    """Read the current release's manifest; None if it is damaged, which must not stop a calibration."""
    try:
        name = current_id(releases)
        return None if name is None else verify(releases / name)
    except (ReleaseError, OSError):
        return None


def check_releases(releases: Path, job: Job) -> None:
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
