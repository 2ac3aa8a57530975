"""`taugate calibrate-run`: a threshold for the scores of another retriever."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.settings import CalibrationSettings
from taugate.cli.calibrate import (
    NO_REFUSAL,
    RULE_KEYS,
    THRESHOLD,
    CalibratedOptions,
    print_calibrated,
    publish_calibrated,
    threshold_parameters,
    with_refuse,
)
from taugate.cli.terminal.command import Command
from taugate.cli.terminal.options import Appearance, option, parameters, specified
from taugate.cli.terminal.promotion import PROMOTION, PromotionOptions
from taugate.data.runs.recording import off_topic_run
from taugate.policy.score_relevance import ScoreScale
from taugate.release.manifest import ReleaseManifest

if TYPE_CHECKING:  # needs the extra `calibration`
    from taugate.calibration.progress import Job

_COMMON = ("run", "qrels", "releases", "k", "scores", "max_loss", "max_answered", "no_promote")


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


def _run(**values: Any) -> int:  # noqa: ANN401 (of the types of the settings)
    from taugate.cli.terminal.display import ProgressDisplay  # needs the extra `calibration`

    requested = with_refuse(specified(values))
    options = CalibrateRunOptions.taken_from(requested)
    settings = CalibrationSettings.from_options(requested)
    written = off_topic_run(options.run)
    off_topic = options.off_topic or (written if written.exists() else None)

    def write(job: "Job") -> ReleaseManifest:
        from taugate.calibration.job.run import RunFiles, calibrate_run  # loads scikit-learn, which takes seconds

        files = RunFiles(options.run, options.qrels, off_topic)
        return calibrate_run(files, options.releases, options.scores, settings, job)

    request, data = (
        options.promotion(new_encoder=options.new_encoder),
        shlex.join([str(options.run), str(options.qrels)]),
    )
    display = ProgressDisplay(steps=True, verbose=options.verbose)
    return print_calibrated(publish_calibrated(write, options, request, settings, data, display), options)


command = Command(
    "calibrate-run",
    callback=_run,
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
    common=_COMMON,
    keys=(*RULE_KEYS, "off_topic", "new_encoder"),
    help="Choose a threshold for the scores of another retriever, and write and promote a release.",
)
