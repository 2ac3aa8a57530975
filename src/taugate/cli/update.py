"""`taugate update`: make a release of a newer corpus with the current threshold, and promote it if that still holds."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from taugate.calibration.settings.update import UpdateSettings
from taugate.cli.terminal.options import add_option, add_signing_option
from taugate.cli.terminal.output import say, say_labelled
from taugate.cli.terminal.promotion_rule import promotion_from_arguments
from taugate.cli.terminal.summary import result

if TYPE_CHECKING:
    from taugate.calibration.update.job import Updated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate update`."""
    parser.description = (
        "Encode what changed in a corpus, keep encoder and threshold of the current release, and promote the new "
        "release if the threshold still holds."
    )
    parser.add_argument(
        "data", metavar="DATA", help="folder, or URL in object storage, with corpus.jsonl, queries.jsonl, qrels/"
    )
    parser.add_argument("--releases", metavar="DIR", type=Path, required=True, help="the releases directory")
    add_option(parser, UpdateSettings.fields(), "split")
    add_option(parser, UpdateSettings.fields(), "margin", metavar="X")
    add_option(parser, UpdateSettings.fields(), "embeddings", metavar="DIR_OR_URL")
    parser.add_argument("--no-promote", action="store_true", help="leave the current release as it is")
    parser.add_argument("--force", action="store_true", help="promote the release even if τ is not shown to hold")
    parser.add_argument("--json", action="store_true", help="print the changes and the result as one JSON object")
    add_signing_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Update, and report.

    Returns:
        0, or 4 if the threshold is not shown to hold.
    """
    # Imported here because it needs the extra `calibration`.
    from taugate.cli.terminal.display import ProgressDisplay

    promotion = promotion_from_arguments(arguments)
    settings = UpdateSettings(**{name: getattr(arguments, name, None) for name in UpdateSettings.fields()})
    with ProgressDisplay() as job:
        with job.task("starting"):
            from taugate.calibration.report.terminal import times
            from taugate.calibration.update.job import update  # loads scikit-learn, which takes seconds

        updated = update(arguments.data, arguments.releases, settings, promotion, job)
        if updated.check is not None:
            job.report(times(job))
    return _report(updated, arguments.releases, as_json=arguments.json, promoting=promotion.requested)


def _report(updated: "Updated", releases: Path, *, as_json: bool, promoting: bool) -> int:
    """Print the path of the release to stdout and the result to stderr; returns the exit code."""
    name, check = updated.manifest.release_id, updated.check
    sys.stdout.write(orjson.dumps(_as_json(updated)).decode() + "\n" if as_json else f"{releases / name}\n")
    sys.stdout.flush()
    if check is None:
        say(f"nothing changed: {name} has these documents already, and remains the current release")
        return 0
    changes, option = updated.changes, f"--releases {shlex.quote(str(releases))}"
    promotion = f"Promoted in place of {updated.parent}."
    if updated.published.promoted and not check.holds:
        promotion = f"Promoted in place of {updated.parent}, as --force asks, though τ is not shown to hold."
    elif not updated.published.promoted:
        promotion = f"Not promoted. {updated.parent} remains the current release."
    following = f"taugate serve {option}" if updated.published.promoted else f"taugate release diff {name} {option}"
    say("")
    say_labelled(
        result(updated.manifest)
        | {
            "Changed": f"Documents: {changes.added:,} added, {changes.changed:,} changed, {changes.removed:,} removed.",
            "Threshold": f"{check.sentence[:1].upper()}{check.sentence[1:]}.",
            "Promotion": promotion,
            "Next": following,
        }
    )
    if updated.published.code:
        remedy = "run taugate calibrate to choose another τ" + (", or give --force" if promoting else "")
        say(f"taugate: {updated.published.message}. {name} was written but not promoted; {remedy}")
    return updated.published.code


def _as_json(updated: "Updated") -> dict[str, Any]:
    """Return the object that --json prints."""
    changes, check = updated.changes, updated.check
    return {
        "release": updated.manifest.release_id,
        "parent": updated.parent,
        "added": changes.added,
        "changed": changes.changed,
        "removed": changes.removed,
        "holds": check is None or check.holds,
        "loss": {"mean": 0.0, "lower": 0.0, "upper": 0.0} if check is None else check.loss.model_dump(),
    }
