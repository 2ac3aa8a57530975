"""Reads the labelled data set of a calibration, and checks that it fits the settings."""

from dataclasses import replace
from pathlib import Path

from taugate.calibration.acceptance.cheaper_search import check_index_trainable
from taugate.calibration.encoding.input_options import InputOptions
from taugate.calibration.metrics.inputs import how_drawn, units_of
from taugate.calibration.metrics.judging import max_own_passages, own_passages_of
from taugate.calibration.progress import Job
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.threshold.strata import QueryStrata
from taugate.data.beir import Dataset, read_dataset, read_people
from taugate.data.judgements import GENERATED, HUMAN, TRAFFIC
from taugate.data.labelled_queries import LabelledQueries
from taugate.data.location import default_split, local_folder
from taugate.errors import InputError
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import MIN_CALIBRATING, held_out
from taugate.release.evidence import Drawn
from taugate.retrieval.engines.engine import external

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
