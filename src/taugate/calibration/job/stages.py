"""The first stages of a calibration: a labelled data set is read, checked, encoded, and its search accepted."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.acceptance.accept import accept_engine
from taugate.calibration.acceptance.baseline import AcceptedSearch
from taugate.calibration.acceptance.cheaper_search import check_index_trainable
from taugate.calibration.encoding.cache import ReusableVectors
from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.encoding.encoder_fit import encoder_fit, encoder_fit_warnings
from taugate.calibration.encoding.encoder_options import InputOptions
from taugate.calibration.encoding.sharded_vectors import ShardedVectors, encode_in_shards
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.engines import UploadedCorpus
from taugate.calibration.job.reranking import AcceptedSecondStage
from taugate.calibration.metrics.inputs import CalibrationInputs, how_drawn, max_own_passages, own_passages_of, units_of
from taugate.calibration.progress import Job
from taugate.calibration.query_set.warnings import truncation_warning
from taugate.calibration.relevance import LabelledSearch
from taugate.calibration.settings import CalibrationSettings
from taugate.calibration.study import outcomes
from taugate.calibration.study.corpus import CorpusSearch
from taugate.calibration.study.reranked import RerankedSearch
from taugate.calibration.study.study import Inherited
from taugate.calibration.threshold.strata import QueryStrata
from taugate.data.beir import Dataset, read_dataset, read_people
from taugate.data.judgements import GENERATED, HUMAN, TRAFFIC
from taugate.data.labelled_queries import LabelledQueries
from taugate.data.location import default_split, local_folder
from taugate.errors import InputError
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import MIN_CALIBRATING, held_out
from taugate.evidence.ranking import JudgedQueries
from taugate.release import layout, queries
from taugate.release.adaptation import AdaptationRecord
from taugate.release.evidence import Drawn
from taugate.release.files import MeasuredFolder
from taugate.release.golden import GoldenQuery
from taugate.release.manifest import ReleaseManifest
from taugate.release.records import EncoderFitRecord, TrainedSimilarity
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.engines.engine import Engine, external
from taugate.retrieval.folders import CorpusFolder, EncoderFolder
from taugate.retrieval.index.hybrid import vector_index
from taugate.retrieval.index.top_k import TopK

_MAX_SIMILARITIES = 50_000_000  # 200 times the default; about 1 GB while COE and ROE are computed


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
        settings.abstention.check(dataset.split, len(dataset.unanswerable))


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
    """Return settings for a data set that comes with vectors, and tell what they leave out."""
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
    units = units_of(dataset.answerable, drawn)
    if drawn == "queries" and labels == "documents":
        job.report(
            f"warning: --drawn queries: the queries of split {dataset.split} were made from documents, so what is "
            "certified may not hold; leave the option out"
        )
    if drawn == "queries" and cap is not None:
        raise InputError(
            f"--count-at-most {cap}: the queries were drawn one by one, so each counts as one; leave the option out, "
            'or give drawn = "documents"'
        )
    if units.unit == "document" and (drawn, labels) == (None, None) and settings.rule.statement is not None:
        job.report(
            "queries about the same document count as one draw, because the labels do not say how they were drawn; if "
            'they were drawn one by one, such as from a log, drawn = "queries" certifies more'
        )
    if units.unit == "document":
        return units.capped(cap)
    if cap is not None:
        job.report(
            f"--count-at-most {cap} changes nothing: so few queries share a document that each counts as one draw"
        )
    return units


def write_files(
    accepted: AcceptedSearch,
    calibrated: outcomes.Calibrated,
    search: LabelledSearch,
    spool: Path,
    report: str,
    release: Path,
) -> None:
    """Write every file of a release except its manifest."""
    if search.dataset.vectors is None:
        EncoderFolder(release / layout.ENCODER_FOLDER).write((accepted.documents or accepted.encoder).folder)
        if accepted.documents is not None:
            EncoderFolder(release / layout.QUERY_FOLDER).write(accepted.encoder.folder)
        if accepted.float32 is not None:
            EncoderFolder(release / layout.FLOAT32_FOLDER).write(accepted.float32.folder)
    corpus = CorpusFolder(release)
    if accepted.engine is None:
        documents = DocumentStore(spool)
        corpus.write(vector_index(accepted.index), documents, Metadata.of(documents))
    if accepted.lexical_part is not None:
        corpus.write_words(accepted.lexical_part.words)
    outcomes.write_study(calibrated, release)
    queries.write_calibration_questions(release / layout.QUESTIONS, outcomes.calibration_questions(calibrated))
    if accepted.projection is not None:
        accepted.projection.projection.save(release / layout.PROJECTION)
    MeasuredFolder(release).write(_golden_queries(search, calibrated.parts["calibration"].members), report)


def _golden_queries(search: LabelledSearch, members: NDArray[np.int64]) -> list[GoldenQuery]:
    """Take evenly spaced calibration queries with their top-K as the service returns them.

    The calibration excludes a query's own document from its results; the service, which has no query ids, does not.
    """
    dataset, judged, top = search.dataset, search.judged, search.judged.top
    rows = outcomes.golden_rows(members)
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
    """A labelled data set that was read, with all that decides how it is calibrated."""

    inputs: CalibrationInputs  # the data set, the division of its queries, and the settings
    encoders: Encoders
    fit: EncoderFitRecord | None  # how the encoder suits the texts; None if it does
    spool: Path
    engine: Engine | None  # engine for the documents, None to keep them in the release
    candidates: int  # largest number of results that a second stage may score; 0 with one stage
    parent: ReleaseManifest | None  # manifest of the current release, None if there is none that can be read
    inherited: Inherited | None  # parts of an earlier release to reuse, None to fit and choose everything now
    adaptation: AdaptationRecord | None  # record of the encoder's adaptation, None if it was not adapted

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
    """The vectors of a data set."""

    texts: EncodedTexts
    corpus: UploadedCorpus | None = None  # the corpus in an engine; None if it is in memory


def encode_data(
    read: Read, in_memory: Callable[[], EncodedTexts], reusable: Callable[[Engine], ReusableVectors | None]
) -> EncodedData:
    """Encode the data set in memory, or with an engine to disk, and upload it unless the engine has it.

    Args:
        reusable: Returns vectors of the current release's collection that need not be encoded again, None without
            any.
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
    """The search of a release."""

    search: AcceptedSearch
    first: CorpusSearch
    second: AcceptedSecondStage | None = None  # the second stage, None with one stage

    @property
    def searching(self) -> CorpusSearch | RerankedSearch:
        """The search that is studied: of both stages, or of the only one."""
        return self.first if self.second is None else self.second.searching


def accept_search(read: Read, encoded: EncodedData, in_memory: Callable[[], AcceptedSearch]) -> Accepted:
    """Choose the search for the release: exact, or what is accepted in place of it."""
    inputs, encoders = read.inputs, read.encoders
    if encoded.corpus is None:
        search = in_memory()
    else:
        search = accept_engine(inputs, encoders.queries, encoded.texts, encoded.corpus, read.candidates)
    search = replace(search, documents=encoders.separate_document_encoder)
    if read.refuses:
        search = search.with_near_misses(inputs.dataset, inputs.settings.seed, read.job)
    return Accepted(search, CorpusSearch(inputs, search.encoded, search.index))
