"""`taugate recalibrate`: from newer data to a better release in service, in one command."""

import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.comparison.rule import PromotionRule
from taugate.calibration.comparison.words import CalibrateResult, report
from taugate.calibration.comparison.words import as_json as promotion_json
from taugate.calibration.recalibration.trial import DEFAULT_QUERIES, DEFAULT_SECONDS, TrialSettings
from taugate.calibration.settings.options import Options
from taugate.cli.terminal.command import OptionGroup
from taugate.cli.terminal.options import AsJson, Data, Releases, Shown, SigningKey, command_of
from taugate.cli.terminal.output import say, say_labelled
from taugate.cli.terminal.promotion import PROMOTION, RuleOptions
from taugate.cli.terminal.summary import result
from taugate.errors import InputError
from taugate.registry.signing import signing_key, trusted_keys

if TYPE_CHECKING:
    from taugate.calibration.recalibration.request import Recalibrated
    from taugate.calibration.recalibration.trial import TrialResult

KEY = "TAUGATE_KEY"  # API key of the services that try the release


@dataclass(frozen=True, kw_only=True)
class TrialOptions(Options):
    """The options of the trial on live traffic."""

    url: Annotated[tuple[str, ...], Shown("URL")] = Field(
        default=(),
        description="a service that reads DIR, such as http://127.0.0.1:8000; repeat the option for each replica",
    )
    shadow: Annotated[int, Shown("QUERIES")] = Field(
        default=DEFAULT_QUERIES,
        description="live queries that both releases answer before the new one is promoted",
    )
    shadow_seconds: Annotated[float, Shown("S")] = Field(
        default=DEFAULT_SECONDS, description="longest wait for these queries"
    )


@dataclass(frozen=True, kw_only=True)
class ReplacementOptions(RuleOptions):
    """The options that decide whether the new release is promoted."""

    no_promote: bool = Field(default=False, description="leave the current release as it is")


@dataclass(frozen=True, kw_only=True)
class RecalibrateOptions(TrialOptions, ReplacementOptions):
    """The options of `taugate recalibrate`."""

    data: Data
    releases: Releases
    log: Annotated[tuple[Path, ...], Shown("LOG")] = Field(
        default=(),
        description="query log of a service (TAUGATE_QUERY_LOG): adds the judgements of users to DATA, which must be a "
        "folder; repeat the option for each replica",
    )
    as_json: AsJson = False
    sign_with: SigningKey = None


def run(options: RecalibrateOptions) -> int:
    """Recalibrate, and report.

    Returns:
        0, 3 if there is no safe threshold, or 4 if the new release is not promoted.
    """
    # Imported here because it needs the extra `calibration`.
    from taugate.cli.terminal.display import ProgressDisplay

    option = options.rule_option()
    if options.no_promote and (option or options.url):
        raise InputError(f"{option or '--url'}: --no-promote promotes nothing; leave one of the two out")
    rule = options.rule()
    promoting = not options.no_promote
    key = signing_key(options.sign_with, promoting=promoting)
    with ProgressDisplay() as job:
        with job.task("starting"):
            # These load scikit-learn, which takes seconds.
            from taugate.calibration.recalibration.job import recalibrate
            from taugate.calibration.recalibration.request import RecalibrationRequest
            from taugate.calibration.report.terminal import times

        trial = TrialSettings(options.url, options.shadow, options.shadow_seconds, os.environ.get(KEY) or None)
        request = RecalibrationRequest(
            options.data, options.releases, options.log, rule, promoting, trial, key, trusted_keys()
        )
        done = recalibrate(request, job)
        if done.manifest is not None:
            job.report(times(job))
    return _report(done, options.releases, rule, as_json=options.as_json, promoting=promoting)


def _report(done: "Recalibrated", releases: Path, rule: PromotionRule | None, *, as_json: bool, promoting: bool) -> int:
    """Print the release to stdout and the summary to stderr; returns the exit code."""
    name = done.current if done.manifest is None else done.manifest.release_id
    sys.stdout.write(orjson.dumps(_as_json(done, rule)).decode() + "\n" if as_json else f"{releases / name}\n")
    sys.stdout.flush()
    if done.manifest is None or done.changes is None or done.loss is None:
        say(
            f"nothing to do: {name} was calibrated on these documents and labels, and remains the current release. If "
            "users now ask other questions, judge some of them (taugate judge) and run this command again"
        )
        return 0
    if done.decision is not None:
        lines: list[str] = []
        report(done.decision, lines.append)
        for line in lines if done.decision.holds else lines[:-1]:  # the summary repeats the last line
            say(line)
    loss, option = done.loss, f"--releases {shlex.quote(str(releases))}"
    policy = done.manifest.policy
    cut = "None" if policy.tau is None else f"{policy.tau:.4f}"
    cause = "it" if done.manifest.answer_threshold is None else "it or to a refusal"
    say("")
    rows = result(done.manifest) | {
        "Changed": f"Documents: {done.changes['added']:,} added, {done.changes['changed']:,} changed, "
        f"{done.changes['removed']:,} removed.{_traffic(done.traffic)}",
        "Threshold": f"{cut}. {100 * loss.mean:.1f} % of the queries lose their answer to {cause} "
        f"({100 * loss.lower:.1f} % to {100 * loss.upper:.1f} %).",
        "Gate": _gate(done, rule),
        "Shadow": _shadow(done.trial),
        "Promotion": _promotion(done, promoting=promoting),
    }
    if done.resumed:
        rows["Resumed"] = f"Done by an earlier run: {', '.join(done.resumed)}."
    rows["Next"] = f"taugate serve {option}" if done.promoted else f"taugate release diff {name} {option}"
    say_labelled(rows)
    if done.refusal is not None:
        say(f"taugate: {name}: not promoted: {done.refusal}")
    return done.code


def _traffic(learned: dict[str, Any] | None) -> str:
    if learned is None:
        return ""
    queries, judgements = learned["queries"], learned["judgements"]
    return (
        f" Judged traffic: {queries:,} {'query' if queries == 1 else 'queries'} with {judgements:,} "
        f"judgement{'' if judgements == 1 else 's'}."
    )


def _gate(done: "Recalibrated", rule: PromotionRule | None) -> str:
    if rule is None:
        return "No promotion rule was given."
    if done.decision is None:
        return "Not checked."
    return f"{done.decision.judged}: {'holds' if done.decision.holds else 'does not hold'}."


def _shadow(trial: "TrialResult | None") -> str:
    if trial is None:
        return "Not tried: --url was not given."
    return (
        f"{trial.compared:,} live queries in {trial.seconds:.0f} s: {trial.changed:,} get other results; without a "
        f"result {trial.empty_before:,} before and {trial.empty_now:,} now; {trial.failed:,} failed."
    )


def _promotion(done: "Recalibrated", *, promoting: bool) -> str:
    if done.promoted:
        return f"Promoted in place of {done.current}."
    because = "for the reason below" if promoting else "because of --no-promote"
    return f"Not promoted, {because}. {done.current} remains the current release."


def _as_json(done: "Recalibrated", rule: PromotionRule | None) -> dict[str, Any]:
    """Return the object that --json prints."""
    ending = CalibrateResult(done.code, decision=done.decision)
    return {
        "release": done.current if done.manifest is None else done.manifest.release_id,
        "previous": done.current,
        "traffic": done.traffic,
        "changed": done.changes,
        "loss": None if done.loss is None else done.loss.model_dump(),
        "gate": None if rule is None or done.manifest is None else promotion_json(rule, ending),
        "shadow": None if done.trial is None else asdict(done.trial),
        "promoted": done.promoted,
        "refusal": done.refusal,
        "resumed": [*done.resumed],
    }


command = command_of(
    "recalibrate",
    run,
    RecalibrateOptions,
    "Calibrate on newer data with the settings of the current release, compare the new release with it, try it on live "
    "traffic, and promote it, or say why not. If it is interrupted, the same command resumes.",
    {
        PROMOTION: ReplacementOptions,
        OptionGroup(
            "trial on live traffic",
            f"needs --url. If the services require API keys, set {KEY} to a key with the scope metrics; with the scope "
            "admin as well, they load the release at once",
        ): TrialOptions,
    },
)
