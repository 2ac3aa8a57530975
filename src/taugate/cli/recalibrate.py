"""`taugate recalibrate`: from newer data to a better release in service, in one command."""

import argparse
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from taugate.calibration.comparison.rule import PromotionRule
from taugate.calibration.comparison.words import as_json as promotion_json
from taugate.calibration.comparison.words import report
from taugate.calibration.recalibration.trial import DEFAULT_QUERIES, DEFAULT_SECONDS, TrialSettings
from taugate.cli.terminal.options import add_signing_option
from taugate.cli.terminal.output import say, say_labelled
from taugate.cli.terminal.promotion_rule import add_rule_options, promotion_from_arguments
from taugate.cli.terminal.summary import result
from taugate.errors import InputError

if TYPE_CHECKING:
    from taugate.calibration.recalibration.request import Recalibrated, RecalibrationRequest
    from taugate.calibration.recalibration.trial import TrialResult

KEY = "TAUGATE_KEY"  # API key of the services that try the release


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate recalibrate`."""
    parser.description = (
        "Calibrate on newer data with the settings of the current release, compare the new release with it, try it on "
        "live traffic, and promote it, or say why not. If it is interrupted, the same command resumes."
    )
    parser.add_argument(
        "data", metavar="DATA", help="folder, or URL in object storage, with corpus.jsonl, queries.jsonl, qrels/"
    )
    parser.add_argument("--releases", metavar="DIR", type=Path, required=True, help="the releases directory")
    parser.add_argument(
        "--log",
        metavar="LOG",
        type=Path,
        action="append",
        default=[],
        help="query log of a service (TAUGATE_QUERY_LOG): adds the judgements of users to DATA, which must be a "
        "folder; repeat the option for each replica",
    )
    promotion = parser.add_argument_group("promotion", "by default, a release with a threshold is promoted")
    add_rule_options(promotion, "--promote-if")
    promotion.add_argument("--no-promote", action="store_true", help="leave the current release as it is")
    trial = parser.add_argument_group(
        "trial on live traffic",
        f"needs --url. If the services require API keys, set {KEY} to a key with the scope metrics; with the scope "
        "admin as well, they load the release at once",
    )
    trial.add_argument(
        "--url",
        metavar="URL",
        action="append",
        default=[],
        help="a service that reads DIR, such as http://127.0.0.1:8000; repeat the option for each replica",
    )
    trial.add_argument(
        "--shadow",
        metavar="QUERIES",
        type=int,
        default=DEFAULT_QUERIES,
        help=f"live queries that both releases answer before the new one is promoted (default: {DEFAULT_QUERIES})",
    )
    trial.add_argument(
        "--shadow-seconds",
        metavar="S",
        type=float,
        default=DEFAULT_SECONDS,
        help=f"longest wait for these queries (default: {DEFAULT_SECONDS:g})",
    )
    parser.add_argument("--json", action="store_true", help="print the changes and the result as one JSON object")
    add_signing_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Recalibrate, and report.

    Returns:
        0, 3 if there is no safe threshold, or 4 if the new release is not promoted.
    """
    # Imported here because it needs the extra `calibration`.
    from taugate.cli.terminal.display import ProgressDisplay

    promotion = promotion_from_arguments(arguments)
    if arguments.no_promote and arguments.url:
        raise InputError("--url: --no-promote promotes nothing; leave one of the two out")
    with ProgressDisplay() as job:
        with job.task("starting"):
            # These load scikit-learn, which takes seconds.
            from taugate.calibration.recalibration.job import recalibrate
            from taugate.calibration.recalibration.request import RecalibrationRequest
            from taugate.calibration.report.terminal import times

        trial = TrialSettings(
            tuple(arguments.url), arguments.shadow, arguments.shadow_seconds, os.environ.get(KEY) or None
        )
        logs = tuple(arguments.log)
        request = RecalibrationRequest(arguments.data, arguments.releases, logs, promotion, trial)
        done = recalibrate(request, job)
        if done.manifest is not None:
            job.report(times(job))
    return _report(done, request, as_json=arguments.json)


def _report(done: "Recalibrated", request: "RecalibrationRequest", *, as_json: bool) -> int:
    """Print the release to stdout and the summary to stderr; returns the exit code."""
    releases, promotion, published = request.releases, request.promotion, done.published
    name = done.current if done.manifest is None else done.manifest.release_id
    sys.stdout.write(
        orjson.dumps(_as_json(done, promotion.rule)).decode() + "\n" if as_json else f"{releases / name}\n"
    )
    sys.stdout.flush()
    if done.manifest is None or done.changes is None or done.loss is None:
        say(
            f"nothing to do: {name} was calibrated on these documents and labels, and remains the current release. If "
            "users now ask other questions, judge some of them (taugate judge) and run this command again"
        )
        return 0
    if (decision := published.decision) is not None:
        lines: list[str] = []
        report(decision, lines.append)
        for line in lines if decision.holds else lines[:-1]:  # the summary repeats the last line
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
        "Gate": _gate(done, promotion.rule),
        "Shadow": _shadow(done.trial),
        "Promotion": _promotion(done, promoting=promotion.requested),
    }
    if done.resumed:
        rows["Resumed"] = f"Done by an earlier run: {', '.join(done.resumed)}."
    rows["Next"] = f"taugate serve {option}" if published.promoted else f"taugate release diff {name} {option}"
    say_labelled(rows)
    if published.message is not None:
        say(f"taugate: {name}: not promoted: {published.message}")
    return published.code


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
    if (decision := done.published.decision) is None:
        return "Not checked."
    return f"{decision.judged}: {'holds' if decision.holds else 'does not hold'}."


def _shadow(trial: "TrialResult | None") -> str:
    if trial is None:
        return "Not tried: --url was not given."
    return (
        f"{trial.compared:,} live queries in {trial.seconds:.0f} s: {trial.changed:,} get other results; without a "
        f"result {trial.empty_before:,} before and {trial.empty_now:,} now; {trial.failed:,} failed."
    )


def _promotion(done: "Recalibrated", *, promoting: bool) -> str:
    if done.published.promoted:
        return f"Promoted in place of {done.current}."
    because = "for the reason below" if promoting else "because of --no-promote"
    return f"Not promoted, {because}. {done.current} remains the current release."


def _as_json(done: "Recalibrated", rule: PromotionRule | None) -> dict[str, Any]:
    """Return the object that --json prints."""
    return {
        "release": done.current if done.manifest is None else done.manifest.release_id,
        "previous": done.current,
        "traffic": done.traffic,
        "changed": done.changes,
        "loss": None if done.loss is None else done.loss.model_dump(),
        "gate": None if rule is None or done.manifest is None else promotion_json(rule, done.published),
        "shadow": None if done.trial is None else asdict(done.trial),
        "promoted": done.published.promoted,
        "refusal": done.published.message,
        "resumed": [*done.resumed],
    }
