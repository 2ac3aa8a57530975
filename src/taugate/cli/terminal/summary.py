"""The last lines of the commands that write a release: result, threshold, changes, promotion, report and next step.

For a provisional release, the first line says so.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taugate.calibration.comparison.publish import Promotion, Published
from taugate.calibration.comparison.words import report
from taugate.calibration.report.compare import Value, compare_releases, same_queries
from taugate.cli.terminal.output import print_result, say, say_labelled
from taugate.registry.catalog import unverified_manifest
from taugate.retrieval.release.layout import REPORT
from taugate.retrieval.release.manifest import ReleaseManifest, RunManifest

# The threshold, and what is dropped.
_DROPPED = {
    "similarity": "{tau:.4f}. Results that score lower are dropped.",
    "relative": "{tau:.4f} of a query's best score. Results below that are dropped.",
    "gap": "{tau:.4f} from a query's best score. Results further below it are dropped.",
    "probability": "{tau:.4f}. Results with a lower probability of being relevant are dropped.",
}
# Shares that are compared with those of the current release: the label of the line, and rows of the comparison.
_CHANGES = {
    "Kept": {"results kept": "of the results are kept"},
    "Lost": {"answers lost": "of the questions lose their answer"},
    "Refused": {
        "off-topic questions refused": "of the off-topic questions are refused",
        "near misses refused": "of the near misses",
        "unanswerable queries refused": "of your unanswerable queries",
    },
}


@dataclass(frozen=True)
class CalibratedRelease:
    """A release that was just written, and the outcome of its promotion.

    Attributes:
        manifest: ReleaseManifest of the release.
        path: Folder of the release.
        request: Promotion that the user requested.
        ending: Outcome of the promotion.
        previous: Id of the release that was current before, or None.
    """

    manifest: ReleaseManifest
    path: Path
    request: Promotion
    ending: Published
    previous: str | None


def print_release(
    printed: Path | Mapping[str, Any], rows: Mapping[str, str], published: Published, error: str | None
) -> int:
    """Print a release to stdout, and what became of it to stderr; returns the exit code.

    Args:
        printed: Folder of the release, or the object that --json prints.
        rows: Lines of the summary by their labels.
        published: How publishing the release ended.
        error: Last line, for a release that was not promoted although no rule was against it.
    """
    lines: list[str] = []
    if published.decision is not None and report(published.decision, lines.append):
        error = lines.pop()
    for line in lines:
        say(line)
    print_result(printed)
    say("")
    say_labelled(rows)
    if error is not None:
        say(f"taugate: {error.removeprefix('taugate: ')}")
    return published.code


def summary(release: CalibratedRelease, *, with_next_steps: bool = True) -> dict[str, str]:
    """Return the lines of the summary of a calibration by their labels.

    Args:
        release: The release to summarize.
        with_next_steps: Include the last two lines, the report and the next step.
    """
    manifest, request, ending, previous = release.manifest, release.request, release.ending, release.previous
    why = "the promotion rule holds." if ending.decision else "it has a threshold, and no promotion rule was given."
    lines = {}
    if manifest.calibration is not None and manifest.state == "provisional":
        lines["State"] = f"Provisional: {manifest.calibration.because(manifest.policy.k)}."
    lines |= {
        **result(manifest),
        "Measured": _measured(manifest),
        "Threshold": _threshold(manifest),
        **_changes(release),
        "Promotion": promotion_sentence(request, ending, previous, why),
    }
    if with_next_steps:
        lines |= {"Report": str(release.path / REPORT), "Next": _next(release)}
    return lines


def result(manifest: ReleaseManifest) -> dict[str, str]:
    """Return the line of what the release keeps, loses and refuses; no line without a summary."""
    return {} if manifest.summary is None else {"Result": manifest.summary}


def _measured(manifest: ReleaseManifest) -> str:
    data, holdout = manifest.data, manifest.bootstrap.holdout
    record, kind = manifest.calibration, "labelled"
    if record is not None and record.generated:
        kind = "human and generated" if record.human else "generated"
    if manifest.labels is not None and manifest.labels.unjudged:
        kind = f"judged and {manifest.labels.unjudged:,} unjudged"
    line = f"{data.answerable:,} {kind} queries on {data.documents:,} documents ({data.name}, split {data.split})."
    if isinstance(manifest, RunManifest):
        line += f" The qrels judge {_percent(manifest.retriever.judged)} of the first {manifest.policy.k} results."
    if not holdout:
        return f"{line} The same queries choose and check the threshold, so expect slightly worse results."
    return f"{line} {_percent(1 - holdout, 0)} of the queries choose the threshold, {_percent(holdout, 0)} check it."


def _threshold(manifest: ReleaseManifest) -> str:
    from taugate.calibration.report.terminal import cost, refusal_sentence  # slow; needed only after a calibration

    policy, metrics = manifest.policy, [*manifest.metrics.values()][-1]
    rule = "None." if policy.tau is None else _DROPPED[policy.kind].format(tau=policy.tau)
    if manifest.refusal is not None:  # the line of the result has the shares
        rule = "None: an answered question keeps all results." if policy.tau is None else rule
        return f"{rule} {refusal_sentence(manifest.refusal)}"
    if manifest.abstention is not None:  # refusals count among what is kept and lost
        return f"{rule} {cost(policy, metrics, refusing=True)}"
    accuracy = _percent(metrics.accuracy.mean)
    if policy.tau is None:
        return f"{rule} Every result is kept, and {accuracy} of the queries find a relevant document."
    kept, with_threshold = _percent(metrics.kept_fraction), _percent(metrics.accuracy_at_tau.mean)
    return (
        f"{rule} {kept} of the results are kept, and {with_threshold} of the queries find a relevant document "
        f"({accuracy} without a threshold)."
    )


def _changes(release: CalibratedRelease) -> dict[str, str]:
    """Return four lines on what changes from the current release to this one; none if there is nothing to compare."""
    before, after = unverified_manifest(release.path.parent, release.previous), release.manifest.model_dump()
    if not before.get("metrics"):
        return {}
    # The last part of each, which is "calibration" without a holdout.
    last = ({**facts, "metrics": {"heldout": [*facts["metrics"].values()][-1]}} for facts in (before, after))
    rows = {row.label: row for row in compare_releases(*last) if row.group in ("heldout", "refusals")}
    if not any(rows[label].changed for shares in _CHANGES.values() for label in shares):
        return {}
    data = "the same" if same_queries(before, after) else "different"
    lines = {"Changes": f"From {release.previous} to this release, measured on {data} queries and documents:"}
    for name, shares in _CHANGES.items():
        measured = {label: row for label in shares if (row := rows[label]).old is not None or row.new is not None}
        if measured:
            changes = (f"{_share(row.old)} → {_share(row.new)} {shares[label]}" for label, row in measured.items())
            lines[name] = f"{', '.join(changes)}."
    return lines


def promotion_sentence(requested: Promotion, published: Published, previous: str | None, why: str) -> str:
    """Return a sentence on whether a release was promoted, and why.

    Args:
        requested: The requested promotion.
        published: How publishing ended.
        previous: Id of the release that was current before.
        why: Why it was promoted, if it was and nothing was forced.
    """
    decision = published.decision
    current = "No release is current yet." if previous is None else f"{previous} remains the current release."
    if decision is not None and not decision.holds:
        return f"Not promoted: the promotion rule does not hold. {current}"
    if published.message is not None:
        return f"Not promoted, for the reason below. {current}"
    if decision is not None and not decision.promoted:
        return f"Not needed: {previous} has the same content and remains the current release."
    if not requested.requested:
        return f"Not promoted, because of --no-promote. {current}"
    if previous is None:
        return "Promoted: no release was current before."
    return f"Promoted in place of {previous}: {'--force was given.' if requested.force else why}"


def _next(release: CalibratedRelease) -> str:
    name, ending = release.path.name, release.ending
    releases = f"--releases {shlex.quote(str(release.path.parent))}"
    if ending.message is None and release.request.requested:  # this release, or one with the same content, is current
        if isinstance(release.manifest, RunManifest):
            return f"in Python: taugate_client.Gate({str(release.path.parent)!r}).cut(results)"
        return f"taugate serve {releases}"
    if ending.decision is not None:
        return f"taugate release diff {name} {releases}"
    if ending.message is not None:
        return "Read the message below, and the report."
    return f"taugate release promote {name} {releases}"


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def _share(value: Value) -> str:
    """Write a share of the comparison in percent; a dash if the release does not have it."""
    return _percent(value) if isinstance(value, int | float) else "–"
