"""Promotion of a new release: the options that decide it, and the last lines of the commands that write a release."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic.dataclasses import dataclass

from taugate.calibration.comparison.publish import Promotion, Published, report
from taugate.calibration.comparison.rule import PromotionRule
from taugate.calibration.progress import metrics_line
from taugate.cli.terminal.command import OptionGroup
from taugate.cli.terminal.options import Appearance, number_or, option
from taugate.cli.terminal.output import print_result, say, say_labelled
from taugate.cli.terminal.process import BY, BY_HELP, act_as
from taugate.errors import InputError
from taugate.evidence.options import Options
from taugate.policy.names import shown_tau
from taugate.policy.policy import POLICIES
from taugate.registry.catalog import unverified_manifest
from taugate.registry.writer import SIGNING_KEY, signing_key, trusted_keys
from taugate.release.layout import REPORT
from taugate.release.manifest import ReleaseManifest, RunManifest
from taugate.release.summary import certificate_cost, summary_lines
from taugate.storage.files import Json

PROMOTION = OptionGroup("promotion", "by default, a release with a threshold is promoted")
RULE = ("max_accuracy_drop", "max_kept_increase", "promote_if")  # the fields that set a rule
FORCE_HELP = (
    "also promote a provisional release over a calibrated one, a release no better than chance, or one whose adapted "
    "encoder was not accepted"
)
_LIMITS = "--max-accuracy-drop and --max-kept-increase"
_Limit = Annotated[
    float | Literal["auto"] | None, Appearance("X|auto", type=number_or("auto", example="a share such as 0.01"))
]
# A clause of a rule that is a sentence, and the option that took its place.
_CLAUSE = re.compile(r"(accuracy not lower|kept share not higher)(?: by more than (\d+(?:\.\d+)?(?:e-?\d+)?))?")
_LIMIT_OF = {"accuracy not lower": "max_accuracy_drop", "kept share not higher": "max_kept_increase"}


@dataclass(frozen=True, kw_only=True)
class PromotionOptions(Options):
    """The options of a command that promotes a release; a command may leave some out.

    The rule is a limit on each cost of the promotion; version 0.2 had a sentence in place of the two options.
    """

    sentence_option: ClassVar[str] = "--promote-if"

    max_accuracy_drop: _Limit = option(
        None, "promote only if accuracy is shown to drop by at most X (auto: 0.01, more with few queries)"
    )
    max_kept_increase: _Limit = option(
        None, "promote only if the share of results kept is shown to rise by at most X; auto as above"
    )
    promote_if: Annotated[str | None, Appearance("RULE", hidden=True)] = option(
        None, f"deprecated: the rule as a sentence; use {_LIMITS}"
    )
    no_promote: bool = option(False, "leave the current release as it is")
    force: bool = option(False, FORCE_HELP)
    sign_with: Annotated[Path | None, Appearance("PEM", variable=SIGNING_KEY)] = option(
        None, "Ed25519 private key to sign the release with"
    )
    by: Annotated[str | None, Appearance("NAME", variable=BY)] = option(None, BY_HELP)

    def promotion(self, *, new_encoder: bool = False, signs: bool = True) -> Promotion:
        """Return the requested promotion; `signs` if the command writes the release, which has to be signed then."""
        act_as(self.by)
        rules = {
            self.sentence_option: self.promote_if,
            "--max-accuracy-drop": self.max_accuracy_drop,
            "--max-kept-increase": self.max_kept_increase,
        }
        option = next((name for name, value in rules.items() if value is not None), None)
        if self.no_promote and (option or self.force):
            raise InputError(f"{option or '--force'}: --no-promote promotes nothing; leave one of the two out")
        if option and self.force:
            raise InputError(f"--force: overrides {option}; leave one of them out")
        key = signing_key(self.sign_with, promoting=signs and not self.no_promote)
        rule = None if option is None else self._rule()
        return Promotion(not self.no_promote, rule, self.force, new_encoder, key, trusted_keys())

    def _rule(self) -> PromotionRule:
        if self.promote_if is None:
            return PromotionRule.from_limits(
                max_accuracy_drop=self.max_accuracy_drop, max_kept_increase=self.max_kept_increase
            )
        if self.max_accuracy_drop is not None or self.max_kept_increase is not None:
            raise InputError(f"{self.sentence_option}: replaced by {_LIMITS}; leave it out")
        limits: dict[str, float | Literal["auto"]] = {}
        for clause in " ".join(self.promote_if.lower().split()).split(" and "):
            match = _CLAUSE.fullmatch(clause)
            if match is None:
                raise InputError(f"{self.sentence_option}: this sentence is no longer read; use {_LIMITS}")
            limits[_LIMIT_OF[match[1]]] = float(match[2]) if match[2] else "auto"
        say(f"warning: {self.sentence_option} is deprecated and will be removed in version 0.4; use {_LIMITS}")
        return PromotionRule.from_limits(**limits)


_SAME = "Not needed: {} has the same content and remains the current release."
_MAX_LOSS = 0.02  # the example of README and docs/tutorial/your-own-data.md


@plain_dataclass(frozen=True)
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
