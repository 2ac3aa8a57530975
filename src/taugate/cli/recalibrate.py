"""`taugate recalibrate`: from newer data to a better release in service; `taugate update`, its deprecated name."""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic.dataclasses import dataclass

from taugate.calibration.comparison.publish import Promotion
from taugate.calibration.comparison.publish import as_json as promotion_json
from taugate.calibration.comparison.rule import PromotionRule
from taugate.calibration.recalibration.trial import DEFAULT_QUERIES, DEFAULT_SECONDS, TrialSettings
from taugate.calibration.settings import UpdateSettings
from taugate.cli.terminal.command import OptionGroup
from taugate.cli.terminal.display import ProgressDisplay
from taugate.cli.terminal.options import Appearance, AsJson, Data, Releases, Verbose, command_of, option, part
from taugate.cli.terminal.output import print_result, say
from taugate.cli.terminal.promotion import (
    FORCE_HELP,
    PROMOTION,
    PromotionOptions,
    print_release,
    promotion_sentence,
    result,
)
from taugate.errors import InputError
from taugate.evidence.options import Options
from taugate.storage.files import Json

if TYPE_CHECKING:
    from taugate.calibration.recalibration.request import Learned, Recalibrated
    from taugate.calibration.recalibration.trial import TrialResult


KEY = "TAUGATE_KEY"  # API key of the services that try the release


@dataclass(frozen=True, kw_only=True)
class TrialOptions(Options):
    """The options of the trial on live traffic."""

    url: tuple[str, ...] = option(
        (), "a service that reads DIR, such as http://127.0.0.1:8000; one for each replica, or a name of all", "URL"
    )
    shadow: int = option(
        DEFAULT_QUERIES, "live queries that both releases answer before the new one is promoted", "QUERIES"
    )
    shadow_seconds: float = option(DEFAULT_SECONDS, "longest wait for these queries", "S")


@dataclass(frozen=True, kw_only=True)
class RecalibrateOptions(TrialOptions, UpdateSettings, PromotionOptions):
    """The options of `taugate recalibrate`."""

    data: Data
    releases: Releases
    log: tuple[Path, ...] = option(
        (),
        "query log of a service (TAUGATE_QUERY_LOG): adds the judgements of users to DATA, which must be a "
        "folder; repeat the option for each replica",
        "LOG",
    )
    force: bool = option(
        False, f"keep the threshold even if it is not shown to hold for changed documents; {FORCE_HELP}"
    )
    as_json: AsJson = False
    verbose: Verbose = False


def run(
    options: RecalibrateOptions,
    as_json: Callable[["Recalibrated", PromotionRule | None], Mapping[str, Json]] | None = None,
) -> int:
    """Make a release of newer data, if they need one, and promote it if it is as good.

    If only documents changed, the threshold is kept as long as it is shown to hold. Otherwise the data are calibrated
    with the settings of the current release. The release is then compared with the current one, and tried on live
    traffic. If the command is interrupted, repeat it to resume.
    """
    promotion = options.promotion()
    if options.no_promote and options.url:
        raise InputError("--url: --no-promote promotes nothing; leave one of the two out")
    with ProgressDisplay(steps=True, verbose=options.verbose, confirmed=True) as job:
        with job.task("starting"):
            # These load scikit-learn, which takes seconds.
            from taugate.calibration.recalibration.job import recalibrate
            from taugate.calibration.recalibration.request import RecalibrationRequest
            from taugate.calibration.report.terminal import times

        trial = TrialSettings(options.url, options.shadow, options.shadow_seconds, os.environ.get(KEY) or None)
        check = part(UpdateSettings, options)
        request = RecalibrationRequest(options.data, options.releases, options.log, promotion, trial, check)
        done = recalibrate(request, job)
        if done.manifest is not None:
            job.report(times(job))
    name = done.written.release
    printed = (as_json or _as_json)(done, promotion.rule) if options.as_json else options.releases / name
    if done.manifest is None:
        print_result(printed)
        say(
            f"{done.written.verdict.sentence} {name} remains current. If users now ask other questions, judge some of "
            "them (taugate judge) and run this command again"
        )
        return 0
    releases = f"--releases {shlex.quote(str(options.releases))}"
    rows = {
        **result(done.manifest),
        **_rows(done, promotion),
        "Next": f"taugate {'serve' if done.published.promoted else f'release diff {name}'} {releases}",
    }
    message = done.published.message
    error = None if message is None else f"{name}: not promoted: {message}"
    return print_release(printed, rows, done.published, error)


def _rows(done: "Recalibrated", promotion: Promotion) -> dict[str, str]:
    """Return the lines of the summary on what was done, by their labels."""
    written, decision = done.written, done.published.decision
    gate, why = (
        "No promotion rule was given." if promotion.rule is None else "Not checked.",
        "no promotion rule was given.",
    )
    if decision is not None:
        gate = f"{decision.judged}: {'holds' if decision.holds else 'does not hold'}."
        why = "the promotion rule holds."
    listed = ", ".join(f"{count:,} {name}" for name, count in (written.changes or {}).items())
    rows = {
        "Verdict": written.verdict.sentence,
        "Changed": f"Documents: {listed}.{_traffic(done.traffic)}",
        **({"Withdrawn": "\n".join(done.withdrawn)} if done.withdrawn else {}),
        "Gate": gate,
        "Shadow": _shadow(done.trial),
        "Promotion": promotion_sentence(promotion, done.published, done.current, why),
    }
    return rows | ({"Resumed": f"Done by an earlier run: {', '.join(done.resumed)}."} if done.resumed else {})


def _traffic(learned: "Learned | None") -> str:
    if learned is None:
        return ""
    queries, judgements = learned.queries, learned.judgements
    return (
        f" Judged traffic: {queries:,} {'query' if queries == 1 else 'queries'} with {judgements:,} "
        f"judgement{'' if judgements == 1 else 's'}."
    )


def _shadow(trial: "TrialResult | None") -> str:
    if trial is None:
        return "Not tried: --url was not given."
    return (
        f"{trial.compared:,} live queries in {trial.seconds:.0f} s: {trial.changed:,} get other results; without a "
        f"result {trial.empty_before:,} before and {trial.empty_now:,} now; {trial.failed:,} failed. They "
        "have no labels, so the trial asks no promise."
    )


def _as_json(done: "Recalibrated", rule: PromotionRule | None) -> dict[str, Json]:
    """Return the object that --json prints."""
    return {
        "release": done.written.release,
        "previous": done.current,
        "verdict": done.written.verdict.model_dump(),
        "traffic": None if done.traffic is None else asdict(done.traffic),
        "changed": done.written.changes,
        "loss": None if done.loss is None else done.loss.model_dump(),
        "gate": None if rule is None or done.manifest is None else promotion_json(rule, done.published),
        "shadow": None if done.trial is None else asdict(done.trial),
        "promoted": done.published.promoted,
        "refusal": done.published.message,
        "resumed": [*done.resumed],
        **({"withdrawn": [*done.withdrawn]} if done.withdrawn else {}),
    }


GROUPS = {
    OptionGroup("check", "of the current threshold, if only documents changed"): UpdateSettings,
    PROMOTION: PromotionOptions,
    OptionGroup(
        "trial on live traffic",
        f"needs --url. If the services require API keys, set {KEY} to a key with the scope metrics; with the scope "
        "admin as well, they load the release at once",
    ): TrialOptions,
}
KEYS = ("split", "margin", "embeddings", "shadow", "shadow_seconds")  # of a settings file
command = command_of("recalibrate", run, RecalibrateOptions, GROUPS, keys=KEYS, embeddings=Appearance("DIR_OR_URL"))


def run_update(options: RecalibrateOptions) -> int:
    """Do what `taugate recalibrate` does, under the name that it had for changed documents."""
    say("warning: taugate update is deprecated and will be removed in version 0.4; use taugate recalibrate")
    return run(options, _update_json)


def _update_json(done: "Recalibrated", _: PromotionRule | None) -> dict[str, Json]:
    """Return the object that --json prints: without a check, τ holds if nothing changed or a new one was chosen."""
    written, check = done.written, done.written.check
    loss = done.loss if check is None else check.loss
    value: dict[str, Json] = {
        "release": written.release,
        "parent": done.current,
        **(written.changes or dict.fromkeys(("added", "changed", "removed"), 0)),
        "holds": not done.published.code if check is None else check.holds,
        "loss": {"mean": 0.0, "lower": 0.0, "upper": 0.0} if loss is None else loss.model_dump(),
        "verdict": written.verdict.model_dump(),
    }
    if withdrawn := [record.promise for record in (done.manifest and done.manifest.withdrawn) or ()]:
        value["withdrawn"] = withdrawn
    return value


update_command = command_of(
    "update", run_update, RecalibrateOptions, GROUPS, keys=KEYS, embeddings=Appearance("DIR_OR_URL")
)
