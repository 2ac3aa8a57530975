"""Compares a new release with the current one by a promotion rule, clause by clause.

Evaluate a promotion rule between two releases, clause by clause. A clause holds if the data show, with the confidence,
that the new release is not worse than the current one by more than the margin. This is non-inferiority, not "no
significant difference", which few queries would always give. All clauses have to hold, so each can be tested at the
full level: if one of them is false, the rule holds no more often than that clause alone would (intersection–union test,
Berger 1982).
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from taugate.calibration.comparison.rule import MARGIN, QUANTITIES, Clause, PromotionRule, QuantitySample
from taugate.errors import InputError, NotPromoted, ReleaseError
from taugate.evidence.clusters import SamplingUnits, Unit
from taugate.evidence.risk.losses import min_detectable_loss, paired_losses, sample_size_factor
from taugate.evidence.rules import CONFIDENCE, default_margin
from taugate.registry.catalog import current_id, find
from taugate.release.layout import OUTCOMES, digest_of
from taugate.release.manifest import ReleaseManifest
from taugate.release.queries import Outcomes
from taugate.release.search_records import GateStatement
from taugate.release.verify import TrustedKeys, verify

Test = Literal["paired", "two samples"]
Finding = Literal["holds", "not shown", "worse"]

# Why nothing had to be compared.
Reason = Literal["first release", "same content"]


@dataclass(frozen=True)
class MeasuredRelease:
    """A release to compare: its manifest, and the outcomes of its queries."""

    manifest: ReleaseManifest
    outcomes: Outcomes

    @property
    def k(self) -> int:
        """Number of results per query before the threshold."""
        return self.manifest.policy.k

    def sample(self, name: str) -> QuantitySample:
        """Read the quantity `name` of each query."""
        return QUANTITIES[name](self.outcomes, self.k)


@dataclass(frozen=True)
class ClauseVerdict:
    """The verdict on one clause."""

    clause: Clause
    widened: bool  # whether that margin is above the default because these queries cannot show less
    current: float
    new: float
    upper: float  # upper limit of how much worse the new release is
    confidence: float
    finding: Finding  # "worse" if the mean is worse by more than the margin, "not shown" if only `upper` is
    test: Test
    unit: Unit  # unit of the mean that `upper` limits: the average query or the average document
    statement: GateStatement | None  # the means for which the clause holds; None if it does not
    detectable: float | None  # the value of `upper` if nothing had changed; None for two samples
    needed: int | None  # number of queries like these that would show that the clause holds; None if no number would
    queries: tuple[int, int]  # number of queries of the current and of the new release
    documents: int  # number of documents that the new release's queries are about


@dataclass(frozen=True)
class MeanDifference:
    """The difference of two means: how much worse the new release is."""

    mean: float  # measured difference, −1…1, below 0 if the new release is better
    upper: float
    test: Test
    units: SamplingUnits
    # Upper limit for the average query, if `upper` is for the average document and the test is paired
    query_upper: float | None
    # The value of `upper` if nothing had changed; None for two samples, whose limit depends on the means
    detectable: float | None


def evaluate_rule(rule: PromotionRule, current: MeasuredRelease, new: MeasuredRelease) -> list[ClauseVerdict]:
    """Evaluate each clause of a rule; raises InputError if the two releases cannot be compared."""
    if current.k != new.k:
        raise InputError(
            f"{new.manifest.release_id}: has K = {new.k}, and the current release {current.manifest.release_id} "
            f"{current.k}; a rule compares only releases of the same K; calibrate with --k {current.k}, or promote "
            "without a rule"
        )
    return [_verdict(clause, current.sample(clause.quantity), new.sample(clause.quantity)) for clause in rule.clauses]


def _verdict(clause: Clause, current: QuantitySample, new: QuantitySample) -> ClauseVerdict:
    samples = (current, new) if clause.way == "lower" else (_inverted(current), _inverted(new))
    difference = mean_difference(*samples, CONFIDENCE)
    margin = clause.margin
    if margin is None:
        margin = MARGIN if difference.detectable is None else default_margin(MARGIN, difference.detectable)
    finding: Finding = "worse" if difference.mean > margin else "not shown"
    if difference.upper <= margin:
        finding = "holds"
    return ClauseVerdict(
        clause=replace(clause, margin=margin),
        widened=clause.margin is None and margin > MARGIN,
        current=float(current.values.mean()),
        new=float(new.values.mean()),
        upper=difference.upper,
        confidence=CONFIDENCE,
        finding=finding,
        test=difference.test,
        unit=difference.units.unit,
        statement=_statement(difference, margin) if finding == "holds" else None,
        detectable=difference.detectable,
        needed=queries_to_show(*samples, margin, CONFIDENCE) if finding == "not shown" else None,
        queries=(len(current), len(new)),
        documents=difference.units.documents,
    )


def _statement(difference: MeanDifference, margin: float) -> GateStatement:
    """Name the means within the margin: of the average query, of the average document, or of both."""
    if difference.query_upper is not None and difference.query_upper <= margin:
        return "document and query"
    return difference.units.unit


def _inverted(sample: QuantitySample) -> QuantitySample:
    """Turn a quantity that must not rise into one that must not fall."""
    return replace(sample, values=1 - sample.values)


def mean_difference(old: QuantitySample, new: QuantitySample, confidence: float) -> MeanDifference:
    """Measure how far the mean of `new` is below that of `old`; the samples are paired if the queries are."""
    units = SamplingUnits.from_clusters(new.clusters)
    if np.array_equal(old.query, new.query):
        losses = old.values - new.values
        level = 1 - confidence
        loss, detectable = paired_losses(losses, units, level=level), min_detectable_loss(units, confidence)
        query_upper = None
        if units.unit == "document":
            query_upper = paired_losses(losses, units, "query", level).upper_limit(confidence)
        return MeanDifference(loss.mean, loss.upper_limit(confidence), "paired", units, query_upper, detectable)
    # If one sample is by document, both are, so that the two means have the same unit.
    effect = max(units.design_effect, SamplingUnits.from_clusters(old.clusters).design_effect)
    units = replace(units, design_effect=effect)
    before, missed = (
        paired_losses(old.values, SamplingUnits(old.clusters, effect)),
        paired_losses(1 - new.values, units),
    )
    mean = before.mean - (1 - missed.mean)
    widths = (loss.upper_limit(confidence) - loss.mean for loss in (before, missed))
    return MeanDifference(mean, min(1.0, mean + math.hypot(*widths)), "two samples", units, None, None)


def queries_to_show(old: QuantitySample, new: QuantitySample, margin: float, confidence: float) -> int | None:
    """Estimate how many queries like these would show that the mean falls by no more than the margin.

    None for two samples, and if no number of queries would show it.
    """
    if not np.array_equal(old.query, new.query):
        return None

    loss = paired_losses(old.values - new.values, SamplingUnits.from_clusters(new.clusters))
    factor = sample_size_factor(loss, margin, 1 - confidence)
    return None if factor is None else math.ceil(factor * len(new))


@dataclass(frozen=True)
class PromotionDecision:
    """The outcome of a promotion under a rule."""

    rule: PromotionRule
    name: str
    current: str | None  # id of the current release, None before the first one
    verdicts: list[ClauseVerdict]
    reason: Reason | None = None
    # Ids of the compared releases without held-out queries; the queries that chose their threshold also measured
    # it
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
    """Check, before a calibration starts, that its release can be compared with the current one."""
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
        trusted: Keys of which one must have signed the release; None requires no signature.
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
    """Verify a release of a directory, and read the outcomes of its queries."""
    release = find(releases, name)
    manifest = verify(release, trusted)
    if OUTCOMES not in manifest.files:
        raise InputError(
            f"{release}: an earlier version wrote it, without what each query got, so no rule can compare it; "
            "calibrate again with --no-promote, and promote the new release without a rule once"
        )
    return MeasuredRelease(manifest, Outcomes.load(release / OUTCOMES, manifest.policy.k))
