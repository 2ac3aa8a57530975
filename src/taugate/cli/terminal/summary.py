"""The last lines of `taugate calibrate`: the measurement, the threshold, the promotion, the report, what next.

A provisional release has one line more, which comes first and says so.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

from taugate.calibration.comparison.words import CalibrateResult
from taugate.cli.terminal.promotion_rule import PromotionRequest
from taugate.retrieval.release.layout import REPORT
from taugate.retrieval.release.manifest import Manifest

# What happens to a result below the threshold.
_DROPPED = {
    "similarity": "{tau:.4f}. Results with a lower similarity are dropped.",
    "relative": "{tau:.4f} of a query's best similarity. Results below that are dropped.",
    "probability": "{tau:.4f}. Results with a lower probability of being relevant are dropped.",
}


@dataclass(frozen=True)
class CalibratedRelease:
    """A release that was just written, and what became of it.

    Attributes:
        manifest: Of the release.
        path: Its folder.
        request: What was asked about its promotion.
        ending: What came of it.
        previous: Id of the release that was current before, None where none was.
    """

    manifest: Manifest
    path: Path
    request: PromotionRequest
    ending: CalibrateResult
    previous: str | None


def summary(release: CalibratedRelease, *, with_next_steps: bool = True) -> dict[str, str]:
    """Return the lines by their labels.

    Args:
        release: What they are about.
        with_next_steps: Include the last two, the report and what to do next.
    """
    in_force, promotion = _promotion(release)
    lines = _state(release.manifest) | {
        "Measured": _measured(release.manifest),
        "Threshold": _threshold(release.manifest),
        "Promotion": promotion,
    }
    if with_next_steps:
        lines |= {"Report": str(release.path / REPORT), "Next": _next(release, in_force=in_force)}
    return lines


def _state(manifest: Manifest) -> dict[str, str]:
    """Return the line of a provisional release; nothing for a calibrated one."""
    record = manifest.calibration
    if record is None or record.state == "calibrated":
        return {}
    return {"State": f"Provisional: {record.because(manifest.policy.k)}."}


def _measured(manifest: Manifest) -> str:
    data, holdout = manifest.data, manifest.bootstrap.holdout
    record, kind = manifest.calibration, "labelled"
    if record is not None and record.generated:
        kind = "human and generated" if record.human else "generated"
    if manifest.labels is not None and manifest.labels.unjudged:
        kind = f"judged and {manifest.labels.unjudged:,} unjudged"
    line = f"{data.answerable:,} {kind} queries on {data.documents:,} documents ({data.name}, split {data.split})."
    if not holdout:
        return f"{line} The same queries choose the threshold and check it: expect a little worse."
    return f"{line} {_percent(1 - holdout, 0)} of the queries choose the threshold, {_percent(holdout, 0)} check it."


def _threshold(manifest: Manifest) -> str:
    from taugate.calibration.report.terminal import cost  # loaded once a release is written

    policy, metrics = manifest.policy, [*manifest.metrics.values()][-1]
    if manifest.abstention is not None:  # whose refusals are part of what is kept and lost
        rule = "None." if policy.tau is None else _DROPPED[policy.kind].format(tau=policy.tau)
        return f"{rule} {cost(policy, metrics, refusing=True)}"
    found = _percent(metrics.accuracy.mean)
    if policy.tau is None:
        return f"None. Every result is kept, and {found} of the queries find a relevant document."
    kept, with_threshold = _percent(metrics.kept_fraction), _percent(metrics.accuracy_at_tau.mean)
    return (
        f"{_DROPPED[policy.kind].format(tau=policy.tau)} {kept} of the results stay, and {with_threshold} of the "
        f"queries find a relevant document ({found} without a threshold)."
    )


def _promotion(release: CalibratedRelease) -> tuple[bool, str]:
    """Say what became of the release, after whether it is in force now: itself, or one of the same content."""
    ending, previous = release.ending, release.previous
    decision = ending.decision
    stays = "Nothing is current yet." if previous is None else f"{previous} stays the current release."
    if ending.said is not None:
        return False, f"Not promoted, for the reason below. {stays}"
    if decision is not None and not decision.holds:
        return False, f"Not promoted: the rule of --promote-if does not hold. {stays}"
    if decision is not None and not decision.promoted:
        return True, f"Not needed: {previous} has the same content and stays the current release."
    if not release.request.wanted:
        return False, f"Not promoted, as --no-promote asks. {stays}"
    if previous is None:
        return True, "Promoted: no release was current before."
    if release.request.force:
        why = "--force asks for it."
    elif decision is None:
        why = "it has a threshold, and no --promote-if sets a rule."
    else:
        why = "the rule of --promote-if holds."
    return True, f"Promoted in place of {previous}: {why}"


def _next(release: CalibratedRelease, *, in_force: bool) -> str:
    name, ending = release.path.name, release.ending
    releases = f"--releases {shlex.quote(str(release.path.parent))}"
    if in_force:
        return f"taugate serve {releases}"
    if ending.decision is not None:
        return f"taugate release diff {name} {releases}"
    if ending.said is not None:
        return "Read the message below, and the report."
    return f"taugate release promote {name} {releases}"


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"
