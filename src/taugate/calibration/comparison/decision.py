"""Compare a new release with the current one by a rule, and promote it if the rule holds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from taugate.calibration.comparison.rule import PromotionRule
from taugate.calibration.comparison.verdicts import ClauseVerdict, MeasuredRelease, evaluate_rule
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
        rule: As requested.
        name: Id of the new release.
        current: Id of the current release, None before the first one.
        verdicts: One per clause.
        reason: Why the rule holds without verdicts.
        optimistic: Ids of the compared releases without held-out queries; the queries that chose their threshold also
            measured it.
        provisional: Whether the new release is provisional.
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
        """The rule with the margins that were applied."""
        return PromotionRule(tuple(verdict.clause for verdict in self.verdicts)) if self.verdicts else self.rule

    @property
    def holds(self) -> bool:
        """True if every clause holds."""
        return all(verdict.finding == "holds" for verdict in self.verdicts)

    @property
    def promoted(self) -> bool:
        """True if the release became current; one of the same content replaces nothing, so no service reloads."""
        return self.holds and self.reason != "same content"


def promote_if(
    releases: Path, name: str, rule: PromotionRule, trusted: TrustedKeys | None = None, *, new_encoder: bool = False
) -> PromotionDecision:
    """Promote a release if the rule holds against the current one.

    The rule always holds if no release is current. If the current release has the same content, the rule holds and
    nothing is promoted. An exception means that nothing has changed.

    Args:
        releases: Directory of releases.
        name: Id of the new release.
        rule: The condition.
        trusted: Keys that the release must be signed with, as for `promote`.
        new_encoder: Whether the encoder may differ from the current release's, as for `promote`.

    Raises:
        InputError: If the two releases cannot be compared.
        NotPromoted: If limits on refusals are not certified, or as `promote` raises it.
        ReleaseError: As `promote` raises it.
        OSError: As `promote` raises it.
    """
    decision = decide(releases, name, rule, trusted)
    if decision.promoted:
        satisfied = SatisfiedRule(str(decision.judged), decision.current)
        promotion.promote(releases, name, trusted, new_encoder=new_encoder, rule=satisfied)
    return decision


def check_current(releases: Path, rule: PromotionRule, k: int) -> None:
    """Check, before a calibration starts, that its release can be compared with the current one.

    Args:
        releases: Directory of releases.
        rule: The condition for promotion.
        k: K of the new release.

    Raises:
        InputError: If K differs, or the current release lacks a quantity of the rule.
        ReleaseError: If the current release cannot be read.
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
    """Compare a release with the current one by a rule, without promoting it.

    Takes the arguments of `promote_if`, and raises its errors except those of the promotion itself.
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
    if current[-12:] == name[-12:]:  # same content digest: the same release cannot be worse
        return PromotionDecision(rule, name, current, [], "same content")
    old = _measured(releases, current)
    optimistic = tuple(
        measured.manifest.release_id for measured in (old, new) if "heldout" not in measured.manifest.metrics
    )
    return PromotionDecision(
        rule, name, current, evaluate_rule(rule, old, new), optimistic=optimistic, provisional=provisional
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
