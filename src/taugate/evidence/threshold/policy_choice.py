"""Chooses the policy: which kinds are certified, by which queries, and which is the best of them.

A named policy is certified alone. For a statement with high probability, `auto` certifies two policies with the error
divided between them (Bonferroni), and uses the one that keeps fewer results. So no query has to be set aside for the
choice, and a policy that fits nothing is certified by all queries. An expected loss has no error to divide, and a cut
that is chosen by its kept share loses more on average; so `auto` is `probability` then (benchmarks/decisions.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import MIN_CALIBRATING, Positions, QueryRoles
from taugate.evidence.measure import Rows
from taugate.evidence.ranking import ScoredQueries
from taugate.evidence.relevance.fitting import AppliedRelevance
from taugate.evidence.risk import words
from taugate.evidence.risk.certify import CertifiedThreshold, LossLimit, certify, counting_enough, enough_queries
from taugate.evidence.risk.steps import LossSteps, loss_steps
from taugate.evidence.rules import PolicyChoice, ThresholdRule
from taugate.policy.names import PolicyKind
from taugate.policy.policy import POLICIES, keep
from taugate.release.evidence import Choice, PolicyCandidate

# The first policy's part of the error. The second one fits nothing, so all queries certify it, and it usually keeps
# less. Chosen on three public sets; on three others .2 keeps .006 less than .5 on average
# (benchmarks/decisions.md, "Relevance and policies").
_FIRST = 0.2


@dataclass(frozen=True)
class CalibrationQueries:
    """The queries that decide a rule, and which of them certify."""

    scored: ScoredQueries  # all answerable queries
    calibration: NDArray[np.int64]
    rows: Rows  # (m, l) positions in the bootstraps
    roles: QueryRoles | None  # None with too few queries
    estimated: AppliedRelevance | None
    units: SamplingUnits
    seed: int

    def certifying(self, *, model: bool) -> Positions:
        """Return the positions of the queries that certify, which fit neither a model nor the score of ρ.

        `certifying_count` predicts their number.
        """
        answering = self.scored.answering
        fits = model or (answering is not None and answering.fitted)
        return self.roles.not_fitting if fits and self.roles is not None else self.calibration

    @property
    def lacking(self) -> str:
        """Reason why no roles could be assigned, with a remedy."""
        units = self.units.take(self.calibration)
        if len(units) < MIN_CALIBRATING:
            return (
                f"needs at least {MIN_CALIBRATING} answerable queries to calibrate on, there are {len(units)}; "
                "label more queries, lower --holdout, or use --policy similarity"
            )
        return (
            f"the queries are divided into those that fit a model and those that certify, with no document in both; "
            f"{units.words} are not enough; label queries about other documents, or use --policy similarity"
        )


@dataclass(frozen=True)
class CertifiablePolicy:
    """A policy with the queries that certify it."""

    kind: PolicyKind
    queries: NDArray[np.int64]  # positions of the queries that certify the policy
    rule: ThresholdRule  # rule with the confidence that this policy needs

    def certify(self, evidence: CalibrationQueries) -> list[CertifiedThreshold]:
        """Certify a threshold for each largest loss of the rule, the one in force first."""
        return [
            certify(loss_limits(rule, evidence, self.queries, self.kind), rule) for rule in self.rule.split_by_loss()
        ]


def choose_policy(
    rule: ThresholdRule, evidence: CalibrationQueries
) -> tuple[CertifiablePolicy, list[CertifiedThreshold], Choice | None]:
    """Return the requested policy, or for `auto` the one whose certified cut keeps the fewest results.

    Returns the policy, its certified threshold for each largest loss, and the record of the choice, None for a named
    policy. Raises InputError if the policy is not possible with these queries.
    """
    _check(rule, evidence)
    entries = _candidates(rule, evidence)
    certified = [entry.certify(evidence) for entry in entries]
    if _named(rule, evidence).policy != "auto":
        return entries[0], certified[0], None
    return _keeping_fewest(entries, certified, evidence)


def certifiable_rho(rule: ThresholdRule, evidence: CalibrationQueries) -> float | None:
    """Return the highest ρ, up to its value, at which a policy is certified without a cut; None if there is none.

    For several largest losses it is that of the first one, which is in force.
    """
    thresholds = []
    for entry in _candidates(rule, evidence):
        in_force = next(entry.rule.split_by_loss())
        thresholds.append(certify(loss_limits(in_force, evidence, entry.queries, None), in_force).tau)
    return max((threshold for threshold in thresholds if threshold is not None), default=None)


def certifiable_policy(rule: ThresholdRule, kind: PolicyKind, evidence: CalibrationQueries) -> CertifiablePolicy:
    """Return the candidate of one kind, with the queries and the confidence for further certificates."""
    return next(entry for entry in _candidates(rule, evidence) if entry.kind == kind)


def with_enough_evidence(rule: ThresholdRule, evidence: CalibrationQueries) -> CalibrationQueries:
    """Lower the default cap on the queries of a document, as far as a certificate of the rule needs it."""
    if rule.statement is None:
        return evidence
    certifying = evidence.certifying(model=_named(rule, evidence).needs_model)
    return replace(evidence, units=counting_enough(evidence.units, certifying, rule))


def loss_limits(
    rule: ThresholdRule, evidence: CalibrationQueries, certifying: NDArray[np.int64], kind: PolicyKind | None
) -> list[LossLimit]:
    """Measure the losses that the rule limits: of the metric, and of empty replies if they are limited.

    Without a kind, the losses are those as ρ rises.
    """
    scored, units = evidence.scored.take(certifying), evidence.units.take(certifying)
    decisions = scored.refusals() if kind is None else scored.certifying(kind)
    limited = [LossLimit(rule.metric, loss_steps(scored.judged, decisions, rule.metric, units), rule.max_loss)]
    if rule.max_empty is not None:
        limited.append(LossLimit(words.EMPTY, LossSteps.of_empty(decisions, units), rule.max_empty))
    return limited


def _named(rule: ThresholdRule, evidence: CalibrationQueries) -> ThresholdRule:
    """Resolve `auto` for an expected loss, and if there are too few queries for a model."""
    # Of the policies without a model, `relative` and `gap` keep fewer results than `similarity`.
    if rule.policy != "auto" or (evidence.roles is not None and not rule.on_average):
        return rule
    without_model = cast(PolicyChoice, evidence.scored.without_model[0])
    return replace(rule, policy=without_model if evidence.estimated is None else "probability")


def _check(rule: ThresholdRule, evidence: CalibrationQueries) -> None:
    if rule.score is None or not rule.score.needs_model:
        return
    if evidence.roles is None:
        raise InputError(f"--policy {rule.policy}: {evidence.lacking}")
    if evidence.estimated is None:
        raise InputError(
            f"--policy {rule.policy}: the queries that fit the model have only irrelevant, or only relevant, documents "
            "in their top K; check the qrels, or use --policy similarity"
        )


def _candidates(rule: ThresholdRule, evidence: CalibrationQueries) -> list[CertifiablePolicy]:
    """Return the named policy, or for `auto` the two preferred ones, between which the error is divided."""
    # `similarity` is one of the two only without a model. The first uses no error for a loss that its queries are too
    # few to certify, which is known before any loss is seen.
    rule = _named(rule, evidence)
    if rule.policy != "auto":
        return [_candidate(rule.policy, evidence, rule)]
    first, second = evidence.scored.kinds[:2]
    error = 1 - rule.confidence
    leading = _candidate(first, evidence, replace(rule, confidence=1 - _FIRST * error))
    used = sum(
        1 - part.confidence
        for part in leading.rule.split_by_loss()
        if enough_queries(loss_limits(part, evidence, leading.queries, first), part)
    )
    remaining = replace(rule, confidence=1 - (error - used))
    return [leading, _candidate(second, evidence, remaining)]


def _candidate(kind: PolicyKind, evidence: CalibrationQueries, rule: ThresholdRule) -> CertifiablePolicy:
    return CertifiablePolicy(kind, evidence.certifying(model=POLICIES[kind].needs_model), rule)


def _keeping_fewest(
    entries: Sequence[CertifiablePolicy], certified: Sequence[list[CertifiedThreshold]], evidence: CalibrationQueries
) -> tuple[CertifiablePolicy, list[CertifiedThreshold], Choice]:
    """Take the policy that keeps the smallest share of the results of queries that fitted nothing."""
    # If none is certified, take the one whose certificates need the fewest additional queries.
    roles = evidence.roles
    if roles is None:
        raise AssertionError("auto needs roles")
    scored = evidence.scored.take(roles.not_fitting)
    candidates, ranks = [], []
    for entry, (in_force, *_) in zip(entries, certified, strict=True):
        tau = None if in_force.tau is None else np.float32(in_force.tau)
        kept = keep(scored.certifying(entry.kind), tau).mean(axis=1)
        lacking = max(certificate.queries_needed / certificate.queries for certificate in in_force.certificates)
        ranks.append((tau is None, float(kept.mean()) if tau is not None else lacking))
        candidates.append(
            PolicyCandidate(
                kind=entry.kind,
                kept_fraction=float(kept.mean()),
                standard_error=float(kept.std() / np.sqrt(len(kept))),
                tau=in_force.tau,
                queries=len(entry.queries),
                confidence=entry.rule.confidence,
            )
        )
    best = ranks.index(min(ranks))
    sizes = {"fit_queries": len(roles.fit), "choose_queries": 0, "certify_queries": len(entries[best].queries)}
    return entries[best], certified[best], Choice(**sizes, candidates=candidates)
