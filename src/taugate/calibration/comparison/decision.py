"""Promote a release where a rule holds: what is read, compared and moved, in this order."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from taugate.calibration.comparison.judge import ClauseVerdict, MeasuredRelease, judge_rule
from taugate.calibration.comparison.rule import PromotionRule
from taugate.errors import InputError, NotPromoted, ReleaseError
from taugate.registry import promotion
from taugate.registry.catalog import current_id, find
from taugate.registry.promotion import SatisfiedRule
from taugate.retrieval.release.layout import OUTCOMES
from taugate.retrieval.release.query_arrays import Outcomes
from taugate.retrieval.release.signature import TrustedKeys
from taugate.retrieval.release.verify import verify

# Why nothing had to be compared.
Reason = Literal["first release", "same content"]


@dataclass(frozen=True)
class PromotionDecision:
    """The outcome of a promotion under a rule.

    Attributes:
        rule: That was asked for.
        name: Of the release.
        current: The release that it was compared with, None before the first.
        verdicts: One for each clause.
        reason: Why it holds without verdicts.
        optimistic: Ids of those releases that had no held-out queries, whose figures are of the queries that chose
            their threshold.
        provisional: Whether the release is.
    """

    rule: PromotionRule
    name: str
    current: str | None
    verdicts: list[ClauseVerdict]
    reason: Reason | None = None
    optimistic: tuple[str, ...] = ()
    provisional: bool = False

    @property
    def judged(self) -> PromotionRule:
        """Rule with the margins that were judged by."""
        return PromotionRule(tuple(verdict.clause for verdict in self.verdicts)) if self.verdicts else self.rule

    @property
    def holds(self) -> bool:
        """True where every clause holds."""
        return all(verdict.finding == "holds" for verdict in self.verdicts)

    @property
    def promoted(self) -> bool:
        """True where it became current: the same content takes nobody's place, and no service loads it anew."""
        return self.holds and self.reason != "same content"


def promote_if(
    releases: Path, name: str, rule: PromotionRule, trusted: TrustedKeys | None = None, *, new_encoder: bool = False
) -> PromotionDecision:
    """Promote a release where the rule holds against the current one; before the first release it does.

    One of the same content as the current release holds, and stays what it is.

    Args:
        releases: The directory of releases.
        name: Of the release.
        rule: To hold.
        trusted: As of `promote`.
        new_encoder: As of `promote`.

    Raises:
        InputError: Where the two cannot be compared, NotPromoted where limits of refusals are not certified, and
            NotPromoted, ReleaseError and OSError as `promote`; then nothing has changed.
    """
    decision = decide(releases, name, rule, trusted)
    if decision.promoted:
        satisfied = SatisfiedRule(str(decision.judged), decision.current)
        promotion.promote(releases, name, trusted, new_encoder=new_encoder, rule=satisfied)
    return decision


def check_current(releases: Path, rule: PromotionRule, k: int) -> None:
    """Find out before the work of a calibration what would keep its release from being compared.

    Args:
        releases: The directory of releases.
        rule: To hold.
        k: K of the new release.

    Raises:
        InputError: .
        ReleaseError: .
    """
    current = current_id(releases) if releases.is_dir() else None
    if current is None:
        return
    measured = _measured(releases, current)
    if measured.k != k:
        raise InputError(
            f"--k {k}: the current release {current} has K = {measured.k}, and a rule compares only "
            f"releases of the same K; give --k {measured.k}, or --no-promote"
        )
    for clause in rule.clauses:
        measured.sample(clause.quantity)


def decide(releases: Path, name: str, rule: PromotionRule, trusted: TrustedKeys | None) -> PromotionDecision:
    """Compare a release with the current one by a rule, and promote nothing.

    Args:
        releases: As of `promote_if`, whose errors are raised but for those of promoting.
        name: As of `promote_if`, whose errors are raised but for those of promoting.
        rule: As of `promote_if`, whose errors are raised but for those of promoting.
        trusted: As of `promote_if`, whose errors are raised but for those of promoting.
    """
    current = current_id(releases)
    new = _measured(releases, name, trusted)
    if new.manifest.policy.kind == "none":
        raise ReleaseError(
            f"{name}: its policy is none, which keeps every result, so no rule can promote it; calibrate with more "
            "labelled queries"
        )
    refusals = new.manifest.abstention
    if refusals is not None and not refusals.certified:
        raise NotPromoted(
            f"{name}: its refusals are not certified within the limits asked for, so no rule can promote it; "
            "calibrate with larger limits, or promote it without a rule",
            "abstention",
        )
    provisional = new.manifest.state == "provisional"
    if current is None:
        return PromotionDecision(rule, name, current, [], "first release", provisional=provisional)
    if current[-12:] == name[-12:]:  # the content digest: what is the same cannot be worse
        return PromotionDecision(rule, name, current, [], "same content")
    old = _measured(releases, current)
    optimistic = tuple(each.manifest.release_id for each in (old, new) if "heldout" not in each.manifest.metrics)
    return PromotionDecision(
        rule, name, current, judge_rule(rule, old, new), optimistic=optimistic, provisional=provisional
    )


def _measured(releases: Path, name: str, trusted: TrustedKeys | None = None) -> MeasuredRelease:
    release = find(releases, name)
    manifest = verify(release, trusted)
    if OUTCOMES not in manifest.files:
        raise InputError(
            f"{release}: an earlier version wrote it, without what each query got, so no rule can compare it; "
            "calibrate again with --no-promote, and promote the new release without a rule once"
        )
    return MeasuredRelease(manifest, Outcomes.load(release / OUTCOMES, manifest.policy.k))
