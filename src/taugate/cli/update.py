"""`taugate update`: make a release of a newer corpus with the current threshold, and promote it if that still holds."""

import shlex

from pydantic.dataclasses import dataclass

from taugate.calibration.settings.update import UpdateSettings
from taugate.cli.terminal.options import Appearance, AsJson, Data, Releases, Verbose, command_of, option, part
from taugate.cli.terminal.output import print_result, say
from taugate.cli.terminal.promotion import RULE, PromotionOptions
from taugate.cli.terminal.summary import print_release, promotion_sentence, result
from taugate.retrieval.release.changed_documents import WithdrawnRecord


@dataclass(frozen=True, kw_only=True)
class UpdateOptions(PromotionOptions, UpdateSettings):
    """The options of `taugate update`: the settings of the check, and what to do."""

    data: Data
    releases: Releases
    force: bool = option(False, "promote the release even if τ is not shown to hold")
    as_json: AsJson = False
    verbose: Verbose = False


def run(options: UpdateOptions) -> int:
    """Make a release of a newer corpus, and promote it if the threshold still holds.

    Only what changed is encoded; encoder and threshold are those of the current release.
    """
    # Imported here because it needs the extra `calibration`.
    from taugate.cli.terminal.display import ProgressDisplay

    promotion = options.promotion()
    with ProgressDisplay(steps=True, verbose=options.verbose, confirmed=True) as job:
        with job.task("starting"):
            from taugate.calibration.report.terminal import times
            from taugate.calibration.update.job import update  # loads scikit-learn, which takes seconds

        updated = update(options.data, options.releases, part(UpdateSettings, options), promotion, job)
        if updated.check is not None:
            job.report(times(job))
    name, check, changes, published = updated.manifest.release_id, updated.check, updated.changes, updated.published
    value = {
        "release": name,
        "parent": updated.parent,
        "added": changes.added,
        "changed": changes.changed,
        "removed": changes.removed,
        "holds": updated.holds,
        "loss": {"mean": 0.0, "lower": 0.0, "upper": 0.0} if check is None else check.loss.model_dump(),
    }
    if updated.withdrawn:
        value["withdrawn"] = [record.promise for record in updated.withdrawn]
    printed = value if options.as_json else options.releases / name
    if check is None:
        print_result(printed)
        say(f"nothing changed: {name} has these documents already, and remains the current release")
        return 0
    releases = f"--releases {shlex.quote(str(options.releases))}"
    rows = result(updated.manifest) | {
        "Changed": f"Documents: {changes.added:,} added, {changes.changed:,} changed, {changes.removed:,} removed.",
        "Threshold": f"{check.sentence[:1].upper()}{check.sentence[1:]}.",
        **({"Withdrawn": "\n".join(map(_withdrawn, updated.withdrawn))} if updated.withdrawn else {}),
        "Promotion": promotion_sentence(promotion, published, updated.parent, "the threshold still holds."),
        "Next": f"taugate serve {releases}" if published.promoted else f"taugate release diff {name} {releases}",
    }
    remedy = "run taugate calibrate to choose another τ" + (", or give --force" if promotion.requested else "")
    error = f"{published.message}. {name} was written but not promoted; {remedy}" if published.code else None
    return print_release(printed, rows, published, error)


def _withdrawn(record: WithdrawnRecord) -> str:
    return f"{record.promise}: {record.words} Not shown: {record.reason}."


command = command_of(
    "update",
    run,
    UpdateOptions,
    without=RULE,
    embeddings=Appearance("DIR_OR_URL"),
)
