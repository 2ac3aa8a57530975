"""One calibration, from a data set to a release; `calibrate` shows the stages in order."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Self

from taugate.calibration.encoding.changes import ReusableVectors
from taugate.calibration.encoding.corpus import query_texts
from taugate.calibration.encoding.encoder_fit import trained_similarity
from taugate.calibration.encoding.outgoing import announce
from taugate.calibration.encoding.prompts import input_warnings, prompts_in_words
from taugate.calibration.encoding.rerankers import RequestedReranker
from taugate.calibration.encoding.source import Encoders, RequestedEncoder
from taugate.calibration.engines.stored import vectors_reusable_from_current
from taugate.calibration.job.candidates import most_candidates
from taugate.calibration.job.reading import check_sizes, read_labelled, sampling_units, without_encoder
from taugate.calibration.job.reranking import try_second_stage
from taugate.calibration.job.stages import CalibrationStages
from taugate.calibration.progress import Job
from taugate.calibration.provisional.state import AvailableEvidence
from taugate.calibration.provisional.words import PROVISIONAL
from taugate.calibration.settings.settings import CalibrationSettings, GateSettings
from taugate.calibration.study.inherited import Inherited
from taugate.errors import EncoderError, InputError, ReleaseError
from taugate.ingestion.dataset.beir import Dataset
from taugate.ingestion.queries.near_misses import near_misses
from taugate.registry.catalog import current_id
from taugate.registry.lock import calibration_lock
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.engines.engine import EngineKind
from taugate.retrieval.release.adaptation import AdaptationRecord, read_adaptation
from taugate.retrieval.release.layout import ENCODER_FOLDERS, FLOAT32_FOLDER, MANIFEST
from taugate.retrieval.release.manifest import Manifest, ReleaseManifest
from taugate.retrieval.release.verify import verify, verify_searchable
from taugate.retrieval.vectors.inner_product import max_norm_above
from taugate.retrieval.vectors.unit import were_normalized


def calibrate(
    data: str, releases: Path, requested: RequestedEncoder, settings: CalibrationSettings, job: Job
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
    with tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        calibration = Calibration(data, releases, requested, settings, Path(spool), job)
        with calibration_lock(releases):
            return calibration.read().encode().gate().rerank().study().decide().write()


class Calibration(CalibrationStages):
    """A calibration of a data set with an encoder and settings that the user requested.

    The constructor checks, before any work, that a release can be written; it raises InputError and EngineUnavailable.

    Args:
        data: A folder or a URL.
        releases: The directory of releases.
        requested: The encoder.
        settings: All other settings.
        spool: Empty folder for the texts of the documents.
        job: Reports progress and warnings, and times the stages.
    """

    def __init__(
        self,
        data: str,
        releases: Path,
        requested: RequestedEncoder,
        settings: CalibrationSettings,
        spool: Path,
        job: Job,
    ) -> None:
        check_releases(releases, job)
        requested.check_name(releases)
        super().__init__(releases, settings, spool, job)
        self.data, self.requested = data, requested
        choice, encoder = settings.candidates.rerank, None if requested.is_own else requested.name
        self.reranker = None if choice == "off" else RequestedReranker.find(choice, encoder, releases)
        if self.reranker is not None and requested.is_own:
            job.report("the second stage reads texts: requests need the text of the query beside its vector")
        if self.reranker is not None:
            self.candidates = most_candidates(settings)
        elif choice != "off":
            job.report("no second stage: neither the encoder's folder nor the current release has a reranker")

    def read(self) -> Self:
        """Read the data set and load the encoder.

        Raises:
            InputError: If the data set or the settings cannot be used.
            EncoderError: If the encoder cannot be loaded or exported.
            ReleaseError: If the current release is needed and cannot be read.
        """
        job, requested, releases = self.job, self.requested, self.releases
        self.parent = current_manifest(releases)
        with job.stage("read"):
            dataset = read_labelled(self.data, self.settings, self.spool, job, own_vectors=requested.is_own)
        queries = len(dataset.answerable) + len(dataset.unanswerable)
        job.describe("read", f"Read {len(dataset.documents):,} documents and {queries:,} queries")
        for note in dataset.notes:
            job.report(note)
        if dataset.orphaned:
            job.report(
                f"warning: queries left out because all their relevant documents are left out: {dataset.orphaned:,}"
            )
        check_sizes(dataset, self.settings)
        units = sampling_units(dataset, self.settings, job)
        self.adaptation = _adaptation(Path(requested.name))
        evidence = AvailableEvidence.count(dataset, self.settings.k, self.adaptation)
        if evidence.because:  # reported before the work, which may take long
            job.report(f"{PROVISIONAL} {evidence.because}")
        dataset = self._load_encoders(dataset)
        requested.check(releases, self.encoders.queries)
        if self.adaptation is not None:
            _warn_of_adaptation(self.adaptation, requested.name, dataset.split, job)
        settings = _on_the_scale_of_tau(self.parent, self.settings)
        self.inherited = _inherited(releases, self.encoders.queries, settings)
        if self.inherited is not None:
            settings = replace(settings, rule=settings.rule.kept_from(self.inherited.chosen_by))
        self.settings = settings
        by_dot = self.encoders.queries.config.similarity == "dot"
        self._begin(dataset, units, None if requested.is_own or by_dot else trained_similarity(requested.name))
        documents = () if settings.embeddings else (document.encoded_text for document in dataset.documents)
        announce(self.encoders.queries, documents, _queries(dataset, settings), job)
        return self

    def _load_encoders(self, dataset: Dataset) -> Dataset:
        """Load the encoder, and say what it reads; with own vectors, say what an encoder would be needed for.

        Returns:
            The data set, with own vectors as they are compared.
        """
        job, requested = self.job, self.requested
        if dataset.vectors is not None:
            self.settings = without_encoder(self.settings, requested.input_options, job)
            vectors, max_norm, longest = dataset.vectors, None, float(dataset.vectors.lengths.max())
            if requested.input_options.similarity == "dot" and not were_normalized(vectors.lengths / longest):
                max_norm = max_norm_above(longest)
                vectors = vectors.for_inner_product(max_norm)
            self.encoders = Encoders.of_vectors(vectors.documents.shape[1], max_norm)
            self._report_similarity()
            return replace(dataset, vectors=vectors)
        with job.stage("export"):
            encoders = Encoders.load(requested.name, requested.input_options, requested.endpoint_options)
            self.encoders = _require_float32(encoders, requested.name)
        config = self.encoders.queries.config
        job.report(prompts_in_words(config))
        self._report_similarity()
        for warning in input_warnings(config):
            job.report(f"warning: {warning}")
        return dataset

    def _report_similarity(self) -> None:
        """Say how texts are compared, if that is not by the cosine of the model's vectors."""
        max_norm = self.encoders.queries.config.max_norm
        if max_norm is not None:
            self.job.report(
                "queries and documents are compared by the dot product: a score is that of the query with length 1 and "
                f"the document, divided by {max_norm:g}"
            )
        elif self.requested.input_options.similarity == "dot":
            self.job.report(
                "warning: --similarity dot: all vectors have the same length, so the dot product ranks like the "
                "cosine, which is used"
            )

    def rerank(self) -> Self:
        """Add a second stage to the search if one is requested, and the gate accepts it or it is named.

        Raises:
            InputError: If the requested rule cannot be applied to its scores.
            RerankerUnavailable: If the reranker gives no scores.
        """
        if self.reranker is None:
            if not self.accepted.gate and self.settings.candidates.gate != GateSettings():
                self.job.report("warning: --margin and --gate-confidence change nothing: no other search is tried")
            return self
        tried, self.second = try_second_stage(self.inputs, self.first_search, self.reranker, self.spool)
        self.accepted = replace(self.accepted, gate=(*self.accepted.gate, *tried))
        if self.second is not None:
            self.searching = self.second.searching
        return self

    def study(self) -> Self:
        """See CalibrationStages.study; also reports warnings about the queries."""
        super().study()
        for warning in [] if self.studied.texts is None else self.studied.texts.query_set.warnings:
            self.job.report(f"warning: {warning}")
        if self.studied.refusal is not None and (left_out := self.studied.refusal.record.left_out):
            self.job.report(f"off-topic questions left out because the documents seem to answer them: {left_out:,}")
        return self

    def _reusable_vectors(self, kind: EngineKind) -> ReusableVectors | None:
        dataset, documents = self.inputs.dataset, self.encoders.documents
        parent = self.parent if isinstance(self.parent, Manifest) else None
        return vectors_reusable_from_current(parent, documents, kind, dataset, self.job)


def _queries(dataset: Dataset, settings: CalibrationSettings) -> Iterator[str]:
    """Yield the texts of all queries that a calibration encodes."""
    yield from chain.from_iterable(query_texts(dataset).values())
    yield from dataset.off_topic_texts
    if settings.refusal:
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
    lexical = current.lexical if isinstance(current, Manifest) else None
    weight = None if lexical is None else lexical.weight
    candidates = replace(settings.candidates, lexical="off" if weight is None else weight)
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
