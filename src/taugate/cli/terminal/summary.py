"""The last lines of the commands that write a release: what is certified and checked, and what to do next."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from taugate.calibration.comparison.publish import Promotion, Published, report
from taugate.calibration.progress import metrics_line
from taugate.cli.terminal.output import print_result, say, say_labelled
from taugate.policy.names import shown_tau
from taugate.policy.policy import POLICIES
from taugate.registry.catalog import unverified_manifest
from taugate.release.layout import REPORT
from taugate.release.manifest import ReleaseManifest, RunManifest
from taugate.release.summary import certificate_cost, summary_lines
from taugate.storage.files import Json

_SAME = "Not needed: {} has the same content and remains the current release."
_MAX_LOSS = 0.02  # the example of README and docs/tutorial/your-own-data.md


@dataclass(frozen=True)
class CalibratedRelease:
    """A release that was just calibrated, and the outcome of its promotion."""

    data: str
    manifest: ReleaseManifest
    path: Path
    request: Promotion
    ending: Published
    previous: str | None

    @property
    def is_of_run(self) -> bool:
        """Whether the results of another retriever were calibrated."""
        return self.manifest.searchable is None

    @property
    def is_current(self) -> bool:
        """Whether this release, or one with the same content, is current now."""
        return self.ending.message is None and self.request.requested

    def rows(self) -> dict[str, str]:
        """Return what was measured, and whether the release was promoted, by labels."""
        lines = result(self.manifest)
        lines |= {"Metrics": metrics_line(self.manifest), "Measured": _measured(self.manifest)}
        if self.manifest.searchable is not None:
            from taugate.calibration.report.gate import verdicts  # needs the extra `calibration`

            lines |= verdicts(self.manifest.searchable)
        before = unverified_manifest(self.path.parent, self.previous).get("summary")
        if before is not None and before != self.manifest.summary:
            lines["Before"] = str(before)
        if self.previous is not None or not self.is_current:
            why = "the promotion rule holds." if self.ending.decision else "it has a threshold, and no rule was given."
            lines["Promotion"] = promotion_sentence(self.request, self.ending, self.previous, why)
            if self.previous == self.path.name:
                lines["Promotion"] = _SAME.format(self.previous)
        return lines

    def next_rows(self) -> dict[str, str]:
        """Return how to open the release, its report, and the one command that improves most, by labels."""
        releases = f"--releases {shlex.quote(str(self.path.parent))}"
        opened = f"taugate serve {releases}"
        if self.is_of_run:
            opened += ", or taugate_client.Gate in Python"
        lines = {"Open": opened} if self.is_current else {}
        if self.is_of_run:
            lines["Store"] = "A service cannot see yours grow: when it has, send it the questions of GET /gate/golden."
        step = self._next_step(releases)
        return lines | {"Report": str(self.path / REPORT)} | ({} if step is None else {"Next": step})

    def _next_step(self, releases: str) -> str | None:
        name = self.path.name
        if self.ending.decision is not None and not self.ending.decision.holds:
            return f"see what changed:\ntaugate release diff {name} {releases}"
        if self.ending.message is not None:
            return "read the message below, and the report."
        if not self.request.requested:
            return f"make it the current release:\ntaugate release promote {name} {releases}"
        if self.manifest.state == "provisional" and not self.is_of_run:
            return f"let people judge results, which labels the queries:\ntaugate judge {self.data} {releases}"
        if self.manifest.policy.statement is None:
            command = (
                f"taugate calibrate{'-run' if self.is_of_run else ''} {self.data} {releases} --max-loss {_MAX_LOSS:g}"
            )
            return f"limit the loss to {100 * _MAX_LOSS:g} %, with 95 % confidence:\n{command}"
        return None


def print_release(
    printed: Path | Mapping[str, Json], rows: Mapping[str, str], published: Published, error: str | None
) -> int:
    """Print a release to stdout, and rows by their labels to stderr; returns the exit code.

    Args:
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


def result(manifest: ReleaseManifest) -> dict[str, str]:
    """Return the state, what is certified at which cost, what was checked, and both thresholds, by labels."""
    record, policy, cost = manifest.calibration, manifest.policy, certificate_cost(manifest)
    state = manifest.state_in_words
    if record is not None and (why := record.because(policy.k)):
        state += f": {why.partition(';')[0]}"  # the remedy is the next step
    rows = {"State": state, **summary_lines(manifest.summary or "")}
    if cost is not None:
        rows["Cost"] = cost
    tau = "no τ" if policy.tau is None else POLICIES[policy.kind].tau.format(tau=shown_tau(policy.tau))
    refusal = manifest.refusal
    rho = f"; ρ = {refusal.rho:.3f}" if refusal is not None and refusal.is_default else ""
    return rows | {"Cut": tau + rho}


def _measured(manifest: ReleaseManifest) -> str:
    data, holdout = manifest.data, manifest.bootstrap.holdout
    record, kind = manifest.calibration, "labelled"
    if record is not None and record.generated:
        kind = "human and generated" if record.human else "generated"
    if manifest.labels is not None and manifest.labels.unjudged:
        kind = f"judged and {manifest.labels.unjudged:,} unjudged"
    split = "" if data.split == "test" else f" of the split {data.split}"  # the default of `taugate calibrate`
    line = f"{data.answerable:,} {kind} queries{split} on {data.documents:,} documents"
    if isinstance(manifest, RunManifest):
        line += f", {100 * manifest.retriever.judged:.0f} % of the first {manifest.policy.k} results judged"
    if not holdout:
        return f"{line}. They choose and check the threshold, so expect slightly worse results."
    return f"{line}, {100 * holdout:.0f} % held out to measure"


def promotion_sentence(requested: Promotion, published: Published, previous: str | None, why: str) -> str:
    """Return a sentence on whether a release was promoted in place of the one before.

    `why` says why it was promoted, if it was and nothing was forced.
    """
    decision = published.decision
    current = "No release is current yet." if previous is None else f"{previous} remains the current release."
    if decision is not None and not decision.holds:
        return f"Not promoted: the promotion rule does not hold. {current}"
    if published.message is not None:
        return f"Not promoted, for the reason below. {current}"
    if decision is not None and not decision.promoted:
        return _SAME.format(previous)
    if not requested.requested:
        return f"Not promoted, because of --no-promote. {current}"
    if previous is None:
        return "Promoted: no release was current before."
    return f"Promoted in place of {previous}: {'--force was given.' if requested.force else why}"
