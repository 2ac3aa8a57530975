"""`taugate update`: make a release of a newer corpus with the current threshold, and promote it if that still holds."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.settings.update import UpdateSettings
from taugate.cli.terminal.options import AsJson, Data, Releases, Shown, SigningKey, command_of, part
from taugate.cli.terminal.output import say, say_labelled
from taugate.cli.terminal.summary import result
from taugate.errors import InputError
from taugate.registry.signing import signing_key, trusted_keys

if TYPE_CHECKING:
    from taugate.calibration.update.job import Updated

_NOT_PROMOTED = 4


@dataclass(frozen=True, kw_only=True)
class UpdateOptions(UpdateSettings):
    """The options of `taugate update`: the settings of the check, and what to do."""

    data: Data
    releases: Releases
    no_promote: bool = Field(default=False, description="leave the current release as it is")
    force: bool = Field(default=False, description="promote the release even if τ is not shown to hold")
    as_json: AsJson = False
    sign_with: SigningKey = None


def run(options: UpdateOptions) -> int:
    """Update, and report.

    Returns:
        0, or 4 if the threshold is not shown to hold.
    """
    # Imported here because it needs the extra `calibration`.
    from taugate.cli.terminal.display import ProgressDisplay

    if options.no_promote and options.force:
        raise InputError("--force: --no-promote promotes nothing; leave one of the two out")
    promoting = not options.no_promote
    key = signing_key(options.sign_with, promoting=promoting)
    with ProgressDisplay() as job:
        with job.task("starting"):
            from taugate.calibration.report.terminal import times
            from taugate.calibration.update.job import (
                UpdatePromotion,
                update,
            )  # loads scikit-learn, which takes seconds

        promotion = UpdatePromotion(promoting, options.force, key, trusted_keys())
        updated = update(options.data, options.releases, part(UpdateSettings, options), promotion, job)
        if updated.check is not None:
            job.report(times(job))
    return _report(updated, options.releases, as_json=options.as_json, promoting=promoting)


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
    if updated.promoted and not check.holds:
        promotion = f"Promoted in place of {updated.parent}, as --force asks, though τ is not shown to hold."
    elif not updated.promoted:
        promotion = f"Not promoted. {updated.parent} remains the current release."
    following = f"taugate serve {option}" if updated.promoted else f"taugate release diff {name} {option}"
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
    if check.holds or updated.promoted:
        return 0
    remedy = "run taugate calibrate to choose another τ" + (", or give --force" if promoting else "")
    say(f"taugate: {check.sentence}. {name} was written but not promoted; {remedy}")
    return _NOT_PROMOTED


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


command = command_of(
    "update",
    run,
    UpdateOptions,
    "Encode what changed in a corpus, keep encoder and threshold of the current release, and promote the new release if "
    "the threshold still holds.",
    embeddings=Shown("DIR_OR_URL"),
)
