"""`taugate recalibrate`: the whole way from newer data to a better release in service, in one command."""

import argparse
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from taugate.calibration.comparison.rule import PromotionRule
from taugate.calibration.comparison.words import CalibrateResult, report
from taugate.calibration.comparison.words import as_json as promotion_json
from taugate.calibration.progress import Stopwatch
from taugate.calibration.recalibration.trial import DEFAULT_QUERIES, DEFAULT_SECONDS, TrialSettings
from taugate.cli.terminal.options import add_signing_option
from taugate.cli.terminal.output import say, say_labelled
from taugate.cli.terminal.promotion_rule import RULE_HELP
from taugate.errors import InputError
from taugate.registry.signing import signing_key, trusted_keys

if TYPE_CHECKING:
    from taugate.calibration.recalibration.request import Recalibrated
    from taugate.calibration.recalibration.trial import TrialResult

KEY = "TAUGATE_KEY"  # of the services that try the release


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate recalibrate`."""
    parser.description = (
        "Calibrate on newer data with the settings of the current release, compare the new release with it, try it on "
        "live traffic, and promote it, or say why not. Killed or interrupted, the same command goes on where it was."
    )
    parser.add_argument(
        "data", metavar="DATA", help="folder, or URL in object storage, with corpus.jsonl, queries.jsonl, qrels/"
    )
    parser.add_argument("--releases", metavar="DIR", type=Path, required=True, help="where releases are kept")
    parser.add_argument(
        "--log",
        metavar="LOG",
        type=Path,
        action="append",
        default=[],
        help="query log of a service (TAUGATE_QUERY_LOG): adds what users judged to DATA, which has to be a "
        "folder; give it once for each replica",
    )
    promotion = parser.add_argument_group(
        "promotion", "without any of these: a release with a cut becomes the current one"
    )
    promotion.add_argument("--promote-if", metavar="RULE", help=RULE_HELP)
    promotion.add_argument("--no-promote", action="store_true", help="leave the current release as it is")
    trial = parser.add_argument_group(
        "trial on live traffic",
        f"without --url: none. If the services have API keys, set {KEY} to one with the scope metrics; with the scope "
        "admin as well, they load the releases at once",
    )
    trial.add_argument(
        "--url",
        metavar="URL",
        action="append",
        default=[],
        help="a service that reads DIR, such as http://127.0.0.1:8000; give it once for each replica",
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
        help=f"wait no longer than this for them (default: {DEFAULT_SECONDS:g})",
    )
    parser.add_argument("--json", action="store_true", help="print what changed and what was found as one JSON object")
    add_signing_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Recalibrate, and report.

    Returns:
        0, 3 where no safe threshold was found, or 4 where the new release is not promoted.
    """
    # What this needs comes with the extra `calibration`, which the other subcommands do without.
    from taugate.cli.terminal.display import ProgressDisplay

    if arguments.no_promote and (arguments.promote_if is not None or arguments.url):
        given = "--promote-if" if arguments.promote_if is not None else "--url"
        raise InputError(f"{given}: --no-promote promotes nothing; leave one of the two out")
    rule = None if arguments.promote_if is None else PromotionRule.parse(arguments.promote_if, "--promote-if")
    wanted = not arguments.no_promote
    key = signing_key(getattr(arguments, "sign_with", None), promoting=wanted)
    watch = Stopwatch()
    with ProgressDisplay(watch) as display:
        with watch.task("starting"):
            # These load scikit-learn, which takes seconds.
            from taugate.calibration.recalibration.job import recalibrate
            from taugate.calibration.recalibration.request import Recalibration
            from taugate.calibration.report.terminal import times

        trial = TrialSettings(
            tuple(arguments.url), arguments.shadow, arguments.shadow_seconds, os.environ.get(KEY) or None
        )
        logs = tuple(arguments.log)
        asked = Recalibration(arguments.data, arguments.releases, logs, rule, wanted, trial, key, trusted_keys())
        done = recalibrate(asked, display.say, watch)
        if done.manifest is not None:
            display.say(times(watch))
    return _report(done, arguments.releases, rule, as_json=arguments.json, wanted=wanted)


def _report(done: "Recalibrated", releases: Path, rule: PromotionRule | None, *, as_json: bool, wanted: bool) -> int:
    """Print the release to stdout and the summary to stderr; returns the exit code."""
    name = done.current if done.manifest is None else done.manifest.release_id
    sys.stdout.write(orjson.dumps(_as_json(done, rule)).decode() + "\n" if as_json else f"{releases / name}\n")
    sys.stdout.flush()
    if done.manifest is None or done.changes is None or done.loss is None:
        say(
            f"nothing to do: {name} was calibrated on these documents and labels, and stays the current release. If "
            "users ask other questions now, judge some of them (taugate judge), then run this again"
        )
        return 0
    if done.decision is not None:
        lines: list[str] = []
        report(done.decision, lines.append)
        for line in lines if done.decision.holds else lines[:-1]:  # the last says why not, as the summary does
            say(line)
    loss, where = done.loss, f"--releases {shlex.quote(str(releases))}"
    policy = done.manifest.policy
    cut = "None" if policy.tau is None else f"{policy.tau:.4f}"
    say("")
    rows = {
        "Changed": f"Documents: {done.changes['added']:,} added, {done.changes['changed']:,} changed, "
        f"{done.changes['removed']:,} removed.{_traffic(done.traffic)}",
        "Threshold": f"{cut}. {100 * loss.mean:.1f} % of the queries lose their answer to it "
        f"({100 * loss.lower:.1f} % to {100 * loss.upper:.1f} %).",
        "Gate": _gate(done, rule),
        "Shadow": _shadow(done.trial),
        "Promotion": _promotion(done, wanted=wanted),
    }
    if done.resumed:
        rows["Resumed"] = f"An earlier run had done: {', '.join(done.resumed)}."
    rows["Next"] = f"taugate serve {where}" if done.promoted else f"taugate release diff {name} {where}"
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
        return "No --promote-if sets a rule."
    if done.decision is None:
        return "Not asked."
    return f"{done.decision.judged}: {'holds' if done.decision.holds else 'does not hold'}."


def _shadow(trial: "TrialResult | None") -> str:
    if trial is None:
        return "Not tried: no --url names a service."
    return (
        f"{trial.compared:,} live queries in {trial.seconds:.0f} s: {trial.changed:,} get other results; without a "
        f"result {trial.empty_before:,} before and {trial.empty_now:,} now; {trial.failed:,} failed."
    )


def _promotion(done: "Recalibrated", *, wanted: bool) -> str:
    if done.promoted:
        return f"Promoted in place of {done.current}."
    because = "for the reason below" if wanted else "as --no-promote asks"
    return f"Not promoted, {because}. {done.current} stays the current release."


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
