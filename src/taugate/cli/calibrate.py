"""`taugate calibrate`, of a data set, and `calibrate-run`, of the scores of another retriever."""

import gc
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import click
import orjson
from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.comparison.publish import PROVISIONAL, Promotion, publish, unfit
from taugate.calibration.comparison.publish import as_json as promotion_json
from taugate.calibration.encoding.encoder_options import EndpointOptions, InputOptions
from taugate.calibration.encoding.source import DEFAULT_ENCODER, RequestedEncoder
from taugate.calibration.progress import Job
from taugate.calibration.settings import Accepted, CalibrationSettings, CandidateSettings
from taugate.cli.terminal.command import Command, Option, OptionGroup
from taugate.cli.terminal.display import ProgressDisplay
from taugate.cli.terminal.options import (
    LEXICAL,
    Appearance,
    Data,
    Releases,
    Verbose,
    number_or,
    option,
    parameters,
    part,
    specified,
)
from taugate.cli.terminal.output import say
from taugate.cli.terminal.promotion import PROMOTION, CalibratedRelease, PromotionOptions, print_release
from taugate.data.runs.recording import off_topic_run
from taugate.data.vectors import has_vectors
from taugate.errors import InputError
from taugate.evidence.rules import AbstentionRule, GateSettings, ThresholdRule
from taugate.policy.score_relevance import ScoreScale
from taugate.registry.catalog import pointed_id
from taugate.registry.writer import without_equal
from taugate.release.layout import CURRENT
from taugate.release.manifest import ReleaseManifest
from taugate.retrieval.encoder.loading import VECTORS
from taugate.storage.files import Json

# What a first month leaves alone; a settings file has it.
RULE_KEYS = (
    "method", "bootstraps", "sample_size", "overlap_percentile", "guarantee", "metric", "confidence",
    "count_at_most", "drawn", "relevant_from", "seed",
)  # fmt: skip
_KEYS = (
    *RULE_KEYS, "projection", "retention", "precision", "lexical", "index", "gate_confidence", "margin",
    "accept", "strata", "rerank_candidates", "accept_vectors", "query_prompt", "document_prompt", "max_length",
    "similarity", "model", "dimensions", "encoder_key_file", "embeddings",
)  # fmt: skip
# What most calibrations decide by; --help shows these, --help-all every option.
_COMMON = (
    "data", "releases", "k", "encoder", "max_loss", "max_answered", "max_accuracy_drop", "no_promote",
)  # fmt: skip
# A job makes many objects and hardly a cycle: at Python's 700, looking for cycles takes a tenth of its time.
_ALLOCATIONS = 50_000
THRESHOLD = OptionGroup("threshold", "by default, the papers' rule; with --max-loss alone, a certified threshold")
_GATE = OptionGroup("gate", "a cheaper option is used if it is shown to lose less than a margin")
_ENDPOINT = OptionGroup("endpoint", "an encoder that another machine runs, if --encoder is openai:URL or tei:URL")
_ENGINE = OptionGroup("engine", "an external store for a corpus that does not fit on one machine")


@dataclass(frozen=True, kw_only=True)
class CalibratedOptions(PromotionOptions):
    """The options of every command that calibrates, beside the settings of a calibration."""

    releases: Releases
    as_json: Annotated[bool, Appearance(names=("--json",))] = option(
        False, "print the release and its manifest as one JSON object"
    )
    verbose: Verbose = False


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(InputOptions, EndpointOptions, CalibratedOptions):
    """The options of `taugate calibrate` beside the settings of a calibration."""

    data: Data
    encoder: str | None = option(
        None,
        "sentence-transformers model; openai:URL or tei:URL of an endpoint; or vectors, those that come with the data "
        f"set (default: vectors if it has them, else {DEFAULT_ENCODER})",
        "NAME_OR_PATH",
    )


def shares(text: str) -> list[float]:
    """Parse numbers with commas between them; Click shows the message of the error."""
    try:
        return [float(share) for share in text.split(",")]
    except ValueError:
        raise click.BadParameter(f'"{text}": give a share such as 0.01, or several such as 0.01,0.02') from None


def candidates(text: str) -> list[str]:
    """Parse names of candidates with commas between them."""
    if unknown := {*(names := text.split(","))} - {*get_args(Accepted)}:
        raise click.BadParameter(f'"{min(unknown)}": give {orjson.dumps(get_args(Accepted)).decode()}')
    return names


def calibrate_and_publish(
    options: CalibrateOptions, settings: CalibrationSettings, *, warnings: bool = True, keep_equal: bool = True
) -> CalibratedRelease:
    """Calibrate, and promote the release, with progress on stderr.

    Args:
        warnings: Whether to print warnings; the report has them anyway.
        keep_equal: Whether to keep a release that has the content of the current one.
    """
    explicit = options.encoder is not None
    request = options.promotion(new_encoder=explicit)
    default = VECTORS if has_vectors(Path(options.data)) else DEFAULT_ENCODER
    encoder = RequestedEncoder(
        options.encoder or default,
        explicit or not request.requested,
        part(InputOptions, options),
        part(EndpointOptions, options),
    )

    def write(job: Job) -> ReleaseManifest:
        from taugate.calibration.job.calibration import calibrate  # loads scikit-learn, which takes seconds

        manifest = calibrate(options.data, options.releases, encoder, settings, job)
        return manifest if keep_equal else without_equal(options.releases, manifest)

    display = ProgressDisplay(steps=True, verbose=options.verbose, warnings=warnings, confirmed=options.yes)
    return publish_calibrated(write, options, request, settings, shlex.quote(options.data), display)


def publish_calibrated(
    write: Callable[[Job], ReleaseManifest],
    options: CalibratedOptions,
    request: Promotion,
    settings: CalibrationSettings,
    data: str,
    display: ProgressDisplay,
) -> CalibratedRelease:
    """Write a release, and promote it.

    Args:
        write: Calibrates and writes the release; returns its manifest.
    """
    gc.set_threshold(_ALLOCATIONS)
    with display as job:
        with job.task("starting"):
            from taugate.calibration.report.terminal import table, times  # load scikit-learn, which takes seconds

            request.check(options.releases, settings.k)
        manifest = write(job)
        path = options.releases / manifest.release_id
        if options.verbose:
            job.report(table(manifest))
            job.report(times(job))
        previous = pointed_id(options.releases, CURRENT)
        with job.stage("promote"):
            ending = publish(path, request, unfit(manifest, settings.rule), report=job.report)
        if ending.provisional and ending.decision is None:
            job.report(PROVISIONAL)
    return CalibratedRelease(data, manifest, path, request, ending, previous)


def with_refuse(requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options with --refuse in place of its deprecated names, and print a notice of these."""
    values = {**requested}
    deprecated = {"--no-refusal": "off" if values.pop("no_refusal", None) else None, "--rho": values.pop("rho", None)}
    for name, value in deprecated.items():
        if value is not None:
            say(f"warning: {name} is deprecated and will be removed in version 0.4; use --refuse {value}")
            if "refuse" in values:
                raise InputError(f"{name}: --refuse {values['refuse']} is given as well; leave out one of the two")
            values["refuse"] = value
    return values


def _run(**values: Any) -> int:  # noqa: ANN401 (of the types of the settings)
    requested = with_refuse(specified(values))
    options = CalibrateOptions.taken_from(requested)
    return print_calibrated(calibrate_and_publish(options, CalibrationSettings.from_options(requested)), options)


def print_calibrated(release: CalibratedRelease, options: CalibratedOptions) -> int:
    """Print a release, and what became of it; returns the exit code."""
    value: dict[str, Json] = {
        "release": release.path.name,
        "path": str(release.path),
        "manifest": release.manifest.model_dump(),
    }
    if release.request.rule is not None:
        value["promotion"] = promotion_json(release.request.rule, release.ending)
    printed: Path | dict[str, Json] = value if options.as_json else release.path
    return print_release(printed, release.rows() | release.next_rows(), release.ending, release.ending.sentences)


NO_REFUSAL = Option(["--no-refusal"], is_flag=True, default=None, hidden=True)
_COUNT = Appearance("N|auto", type=number_or("auto", number=int, example="a whole number of 1 or more"))
_gate_confidence = Appearance("P", ("--gate-confidence", "gate_confidence"))


def threshold_parameters(*more: str) -> list[click.Parameter]:
    """Return the options that decide the threshold; `more` names further fields of its rule."""
    names = ("method", "policy", "max_loss", "metric", "guarantee", "confidence", "max_empty")
    return [
        *parameters(
            ThresholdRule,
            *(*names, *more, "count_at_most", "tau"),
            group=THRESHOLD,
            optional=True,
            max_loss=Appearance("X[,X…]", type=shares),
            confidence=Appearance("P"),
            strata=Appearance("metadata.FIELD"),
            count_at_most=_COUNT,
        ),
        *parameters(AbstentionRule, "max_answered", group=THRESHOLD, optional=True),
    ]


command = Command(
    "calibrate",
    callback=_run,
    params=[
        *parameters(CalibrateOptions, "data", "releases", "encoder", "as_json", "verbose"),
        *parameters(InputOptions, max_length=Appearance("TOKENS")),
        *parameters(EndpointOptions, group=_ENDPOINT),
        *parameters(
            CalibrationSettings,
            *("split", "relevant_from", "labels", "drawn", "k", "bootstraps"),
            *("sample_size", "seed", "holdout", "overlap_percentile"),
            relevant_from=Appearance("GRADE"),
            labels=Appearance("SPLITS", type=lambda text: tuple(text.split(","))),
        ),
        *threshold_parameters("strata"),
        *parameters(
            CalibrationSettings,
            "refuse",
            group=THRESHOLD,
            refuse=Appearance("auto|off|RHO", type=number_or("auto", "off", example="a threshold ρ such as 0.4")),
        ),
        NO_REFUSAL,
        Option(["--rho"], type=float, hidden=True),
        *parameters(
            CandidateSettings,
            *("lexical", "projection", "retention", "precision", "index", "rerank", "rerank_candidates", "accept"),
            group=_GATE,
            lexical=LEXICAL,
            retention=Appearance("R"),
            accept=Appearance("[CANDIDATE, …]", type=candidates),
            rerank=Appearance("MODEL"),
            rerank_candidates=_COUNT,
        ),
        *parameters(GateSettings, "margin", group=_GATE),
        *parameters(GateSettings, "confidence", group=_GATE, confidence=_gate_confidence),
        *parameters(CalibrationSettings, "accept_vectors"),
        *parameters(CalibrationSettings, "engine", "embeddings", group=_ENGINE, embeddings=Appearance("DIR_OR_URL")),
        *parameters(PromotionOptions, group=PROMOTION),
    ],
    common=_COMMON,
    keys=_KEYS,
    help="Measure a labelled data set, choose the threshold, and write and promote a release.",
)


_RUN_COMMON = ("run", "qrels", "releases", "k", "scores", "max_loss", "max_answered", "no_promote")


@dataclass(frozen=True, kw_only=True)
class CalibrateRunOptions(CalibratedOptions):
    """The options of `taugate calibrate-run` beside the settings of a calibration."""

    run: Annotated[
        Path,
        Appearance("RUN", positional=True),
        Field(description="results with their scores: a TREC run, or JSON Lines with query_id and results"),
    ]
    qrels: Annotated[
        Path, Appearance("QRELS", positional=True), Field(description="judgements of the results, BEIR or TREC")
    ]
    scores: ScoreScale = option(
        "similarity", "what the scores are; of distances, lower is better, and log-odds may be negative"
    )
    off_topic: Path | None = option(
        None,
        "results of the same search for questions about other subjects, which choose ρ (default: "
        "RUN.off-topic.jsonl, which `taugate run` writes, if it exists)",
        "RUN",
    )
    new_encoder: bool = option(False, "promote also over a release with another retriever or encoder")


def _run_calibrate_run(**values: Any) -> int:  # noqa: ANN401 (of the types of the settings)
    requested = with_refuse(specified(values))
    options = CalibrateRunOptions.taken_from(requested)
    settings = CalibrationSettings.from_options(requested)
    written = off_topic_run(options.run)
    off_topic = options.off_topic or (written if written.exists() else None)

    def write(job: Job) -> ReleaseManifest:
        from taugate.calibration.job.run import RunFiles, calibrate_run  # loads scikit-learn, which takes seconds

        files = RunFiles(options.run, options.qrels, off_topic)
        return calibrate_run(files, options.releases, options.scores, settings, job)

    request, data = (
        options.promotion(new_encoder=options.new_encoder),
        shlex.join([str(options.run), str(options.qrels)]),
    )
    display = ProgressDisplay(steps=True, verbose=options.verbose)
    return print_calibrated(publish_calibrated(write, options, request, settings, data, display), options)


calibrate_run_command = Command(
    "calibrate-run",
    callback=_run_calibrate_run,
    params=[
        *parameters(CalibrateRunOptions, "run", "qrels", "releases", "scores", "off_topic", "as_json", "verbose"),
        *parameters(
            CalibrationSettings,
            *("relevant_from", "drawn", "k", "bootstraps", "sample_size", "seed", "holdout", "overlap_percentile"),
            relevant_from=Appearance("GRADE"),
        ),
        *threshold_parameters(),
        *parameters(
            CalibrationSettings, "refuse", group=THRESHOLD, refuse=Appearance(type=click.Choice(["auto", "off"]))
        ),
        NO_REFUSAL,
        *parameters(PromotionOptions, group=PROMOTION),
        *parameters(CalibrateRunOptions, "new_encoder", group=PROMOTION),
    ],
    common=_RUN_COMMON,
    keys=(*RULE_KEYS, "tau", "off_topic", "new_encoder"),
    help="Choose a threshold for the scores of another retriever, and write and promote a release.",
)
