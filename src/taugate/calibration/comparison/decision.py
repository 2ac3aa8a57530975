"""Compare a new release with the current one by a promotion rule."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from taugate.calibration.comparison.rule import PromotionRule
from taugate.calibration.comparison.verdicts import ClauseVerdict, MeasuredRelease, evaluate_rule
from taugate.errors import InputError, NotPromoted, ReleaseError
from taugate.registry.catalog import current_id, find
from taugate.retrieval.release.layout import OUTCOMES, digest_of
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
    def objection(self) -> str | None:
        """Why the release must not be promoted, with the clauses that do not hold; None if the rule holds."""
        if self.holds:
            return None
        failed = ", ".join(
            f'"{verdict.clause}" ({verdict.finding})' for verdict in self.verdicts if verdict.finding != "holds"
        )
        return f"the promotion rule does not hold: {failed}"

    @property
    def promoted(self) -> bool:
        """True if the release may become current; one of the same content replaces nothing, so no service reloads."""
        return self.holds and self.reason != "same content"


def check_current(releases: Path, k: int) -> None:
    """Check, before a calibration starts, that its release can be compared with the current one.

    Args:
        releases: Directory of releases.
        k: K of the new release.

    Raises:
        InputError: If K differs, or the current release has no outcomes.
        ReleaseError: If the current release cannot be read.
    """
    current = current_id(releases) if releases.is_dir() else None
    if current is None:
        return
    compared = measured(releases, current)
    if compared.k != k:
        raise InputError(
            f"--k {k}: the current release {current} has K = {compared.k}, and a rule compares only "
            f"releases of the same K; give --k {compared.k}, or --no-promote"
        )


def decide_promotion(releases: Path, name: str, rule: PromotionRule, trusted: TrustedKeys | None) -> PromotionDecision:
    """Compare a release with the current one by a rule.

    The rule always holds if no release is current, or if the current release has the same content.

    Args:
        releases: Directory of releases.
        name: Id of the new release.
        rule: The condition.
        trusted: Keys of which one must have signed the release; None requires no signature.

    Raises:
        InputError: If the two releases cannot be compared.
        NotPromoted: If limits on refusals are not certified.
        ReleaseError: If a release does not verify, or the new one has no threshold.
    """
    current = current_id(releases)
    new = measured(releases, name, trusted)
    if new.manifest.policy.tau is None:
        raise ReleaseError(
            f"{name}: its policy is none, which keeps every result, so no rule can promote it; calibrate with more "
            "labelled queries"
        )
    refusal = new.manifest.refusal
    if refusal is not None and refusal.limits is not None and not refusal.certified:
        raise NotPromoted(
            f"{name}: its refusals are not certified within the limits asked for, so no rule can promote it; "
            "calibrate with larger limits, or promote it without a rule",
            "abstention",
        )
    provisional = new.manifest.state == "provisional"
    if current is None:
        return PromotionDecision(rule, name, current, [], "first release", provisional=provisional)
    if digest_of(current) == digest_of(name):  # same content digest: the same release cannot be worse
        return PromotionDecision(rule, name, current, [], "same content")
    old = measured(releases, current)
    optimistic = tuple(
        release.manifest.release_id for release in (old, new) if "heldout" not in release.manifest.metrics
    )
    return PromotionDecision(
        rule, name, current, evaluate_rule(rule, old, new), optimistic=optimistic, provisional=provisional
    )


def measured(releases: Path, name: str, trusted: TrustedKeys | None = None) -> MeasuredRelease:
    """Verify a release of a directory, and read the outcomes of its queries.

    Raises:
        ReleaseError: If it does not verify.
        InputError: If it has no outcomes.
    """
    release = find(releases, name)
    manifest = verify(release, trusted)
    if OUTCOMES not in manifest.files:
        raise InputError(
            f"{release}: an earlier version wrote it, without what each query got, so no rule can compare it; "
            "calibrate again with --no-promote, and promote the new release without a rule once"
        )
    return MeasuredRelease(manifest, Outcomes.load(release / OUTCOMES, manifest.policy.k))
