"""Chooses the policy: which kinds are certified, by which queries and with which part of the error, and which is used.

A named policy is certified alone. `auto` works in two ways. For a statement with high probability, two policies are
certified with the error divided between them (Bonferroni), and the one that keeps fewer results is used. So no query
has to be set aside for the choice, and a policy that fits nothing is certified by all queries. An expected loss has no
error to divide, so one policy is chosen by queries that do not certify.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.risk import bounds, words
from taugate.calibration.risk.certify import CertifiedThreshold, LossLimit, certify, queries_needed
from taugate.calibration.risk.steps import LossSteps, loss_steps
from taugate.calibration.settings.rules import PolicyChoice, ThresholdRule
from taugate.calibration.threshold.calibration_queries import CalibrationQueries
from taugate.errors import InputError
from taugate.retrieval.policy.policy import PolicyKind, keep
from taugate.retrieval.release.evidence import Choice, PolicyCandidate
from taugate.retrieval.vectors.similarity import Float32

# Resamples of the queries for the standard error of a difference, which is then known to 1/√(2·100) = 7 %.
_RESAMPLES = 100
# Policies are compared up to twice the allowed loss: at the allowed loss alone the choice depends on one or two
# queries.
_RANGE = 2.0
# Thresholds compared in that range, in steps of 1 %.
_THRESHOLDS = 100
# The first policy's part of the error. The second one gets the remainder, and the error that the first cannot use: it
# fits nothing, so all queries certify it, and it usually keeps less. Chosen on three public sets; on three others .2
# keeps .006 less than .5 on average (docs/research/calibration.md, "How auto divides the error").
_FIRST = 0.2


@dataclass(frozen=True)
class CertifiablePolicy:
    """A policy with the queries that certify it.

    Attributes:
        kind: "similarity", "relative", "gap" or "probability".
        queries: Positions of the queries that certify the policy.
        rule: Rule with the confidence that this policy needs.
    """

    kind: PolicyKind
    queries: NDArray[np.int64]
    rule: ThresholdRule

    def certify(self, evidence: CalibrationQueries) -> list[CertifiedThreshold]:
        """Certify a threshold for each largest loss of the rule, the one in force first."""
        return [
            certify(loss_limits(rule, evidence, self.queries, self.kind), rule) for rule in self.rule.split_by_loss()
        ]


def choose_policy(
    rule: ThresholdRule, evidence: CalibrationQueries
) -> tuple[CertifiablePolicy, list[CertifiedThreshold], Choice | None]:
    """Return the requested policy, or for `auto` the one whose certified cut keeps the fewest results.

    Returns:
        The policy, its certified threshold for each largest loss, and the record of the choice, None for a named
        policy.

    Raises:
        InputError: If the policy is not possible with these queries.
    """
    _check(rule, evidence)
    rule = _named(rule, evidence)
    if rule.policy != "auto":
        entry = CertifiablePolicy(rule.policy, certifying_queries(rule, rule.policy, evidence), rule)
        return entry, entry.certify(evidence), None
    if rule.statement == "expected-loss":
        kind, choice = _chosen_before(rule, evidence)
        entry = CertifiablePolicy(kind, certifying_queries(rule, kind, evidence), rule)
        return entry, entry.certify(evidence), choice
    entries = _divided(rule, evidence)
    certified = [entry.certify(evidence) for entry in entries]
    return _keeping_fewest(entries, certified, evidence)


def certifiable_policy(rule: ThresholdRule, kind: PolicyKind, evidence: CalibrationQueries) -> CertifiablePolicy:
    """Return the candidate of one kind, with the queries and the confidence for further certificates."""
    rule = _named(rule, evidence)
    if rule.policy == "auto" and rule.statement == "high-probability":
        return next(entry for entry in _divided(rule, evidence) if entry.kind == kind)
    return CertifiablePolicy(kind, certifying_queries(rule, kind, evidence), rule)


def certifying_queries(rule: ThresholdRule, kind: PolicyKind, evidence: CalibrationQueries) -> NDArray[np.int64]:
    """Return the positions of the queries that certify a policy, which were not used to fit or choose it."""
    if evidence.roles is None:
        return evidence.calibration
    answering = evidence.scored.answering
    fits_refusal = answering is not None and answering.fitted
    if rule.policy == "auto" and rule.statement == "expected-loss":
        return evidence.roles.certify
    return evidence.roles.not_fitting if kind == "probability" or fits_refusal else evidence.calibration


def loss_limits(
    rule: ThresholdRule, evidence: CalibrationQueries, certifying: NDArray[np.int64], kind: PolicyKind
) -> list[LossLimit]:
    """Measure the losses that the rule limits: of the metric, and of empty replies if they are limited.

    Args:
        rule: Rule with the metric and the limits.
        evidence: The queries.
        certifying: Positions of the certifying queries.
        kind: Kind of the policy.
    """
    scored, units = evidence.scored.take(certifying), evidence.units.take(certifying)
    decisions = scored.certifying(kind)
    limited = [LossLimit(rule.metric, loss_steps(scored.judged, decisions, rule.metric, units), rule.max_loss)]
    if rule.max_empty is not None:
        limited.append(LossLimit(words.EMPTY, LossSteps.of_empty(decisions, units), rule.max_empty))
    return limited


def _named(rule: ThresholdRule, evidence: CalibrationQueries) -> ThresholdRule:
    """Resolve `auto` if there are too few queries for a model: `relative` and `gap` keep less than `similarity`."""
    if rule.policy != "auto" or evidence.roles is not None:
        return rule
    return replace(rule, policy=cast(PolicyChoice, evidence.scored.without_model[0]))


def _check(rule: ThresholdRule, evidence: CalibrationQueries) -> None:
    if rule.policy == "probability" and evidence.roles is None:
        raise InputError(f"--policy probability: {evidence.lacking}")
    if rule.policy == "probability" and evidence.estimated is None:
        raise InputError(
            "--policy probability: the queries that fit the model have only irrelevant, or only relevant, documents in "
            "their top K; check the qrels, or use --policy similarity"
        )


def _divided(rule: ThresholdRule, evidence: CalibrationQueries) -> list[CertifiablePolicy]:
    """Divide the error between the two preferred policies; `similarity` is one of them only without a model."""
    first, second = evidence.scored.kinds[:2]
    error = 1 - rule.confidence
    leading = CertifiablePolicy(
        first, certifying_queries(rule, first, evidence), replace(rule, confidence=1 - _FIRST * error)
    )
    used = sum(
        _used(loss_limits(part, evidence, leading.queries, first), part) for part in leading.rule.split_by_loss()
    )
    confidence = 1 - (error - used)
    return [
        leading,
        CertifiablePolicy(second, certifying_queries(rule, second, evidence), replace(rule, confidence=confidence)),
    ]


def _used(limited: Sequence[LossLimit], rule: ThresholdRule) -> float:
    """Return the largest error of the test of these limits, which is known before any loss is seen.

    It is 0 if there are too few queries to pass one of the limits. All limits have to pass, so the error is that of the
    limit with the largest error (intersection–union test).
    """
    if any(queries_needed(limit, rule) > limit.steps.queries for limit in limited):
        return 0.0
    return max(_level(limit, 1 - rule.confidence) for limit in limited)


def _level(limit: LossLimit, error: float) -> float:
    """Return the level that one limit uses, which is smaller than the error because counts move in steps."""
    if limit.steps.documents is not None or not limit.steps.binary:
        return error
    p_values = bounds.exact_p_values(np.arange(limit.steps.queries + 1.0), limit.steps.queries, limit.delta)
    return min(error, float(p_values[p_values <= error * (1 + 1e-9)].max(initial=0.0)))


def _keeping_fewest(
    entries: Sequence[CertifiablePolicy], certified: Sequence[list[CertifiedThreshold]], evidence: CalibrationQueries
) -> tuple[CertifiablePolicy, list[CertifiedThreshold], Choice]:
    """Take the policy that keeps the smallest share of the results of queries that fitted nothing.

    If none is certified, take the one whose certificates need the fewest additional queries.
    """
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


def _chosen_before(rule: ThresholdRule, evidence: CalibrationQueries) -> tuple[PolicyKind, Choice]:
    """Choose the policy that keeps the fewest results near the allowed loss, by queries that do not certify."""
    roles = evidence.roles
    if roles is None:
        raise AssertionError("auto needs roles")
    scored = evidence.scored.take(np.concatenate([roles.fit, roles.choose]))
    decisions: dict[PolicyKind, Float32] = {kind: scored.decisions(kind) for kind in scored.kinds}
    if evidence.estimated is not None:  # the model's estimates are too good for queries on which it was fitted
        decisions["probability"] = np.concatenate([evidence.estimated.fit.out_of_fold, evidence.estimated.choosing])
    kind, candidates = choose_by_kept_share(scored.judged, decisions, rule, np.random.default_rng([evidence.seed, 2]))
    sizes = {"fit_queries": len(roles.fit), "choose_queries": len(roles.choose), "certify_queries": len(roles.certify)}
    return kind, Choice(**sizes, candidates=candidates)


def choose_by_kept_share(
    queries: JudgedQueries,
    decisions: Mapping[PolicyKind, Float32],
    rule: ThresholdRule,
    rng: np.random.Generator,
) -> tuple[PolicyKind, list[PolicyCandidate]]:
    """Choose the policy that keeps the fewest results near the allowed loss.

    A less preferred policy has to keep less by more than one standard error of the difference (the one-standard-error
    rule, Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", 2nd ed., §7.10), because with few
    queries a smaller share is often luck.

    Args:
        queries: q answerable queries.
        decisions: (q, K) float32 decision scores of each policy, in order of preference.
        rule: Rule with the metric and the limits.
        rng: Generator of the resamples.

    Returns:
        The policy, and the kept share of each.
    """
    size = len(queries)
    rows = rng.integers(0, size, size=(_RESAMPLES, size))
    counts = np.array([np.ones(size), *(np.bincount(row, minlength=size).astype(np.float64) for row in rows)])
    kept: dict[PolicyKind, NDArray[np.float64]] = {
        kind: _kept(queries, scores, rule, counts) for kind, scores in decisions.items()
    }
    best, *alternatives = decisions
    for kind in alternatives:
        difference = kept[best] - kept[kind]
        if difference[0] > difference[1:].std():
            best = kind
    return best, [
        PolicyCandidate(kind=kind, kept_fraction=float(shares[0]), standard_error=float(shares[1:].std()))
        for kind, shares in kept.items()
    ]


def _kept(
    queries: JudgedQueries, decisions: Float32, rule: ThresholdRule, counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the share of results kept by resample, averaged over every τ whose loss is at most twice the allowed one.

    Args:
        queries: q answerable queries.
        decisions: (q, K) decision scores.
        rule: Rule with the metric and the limits.
        counts: (r, q), how often each resample has each query.
    """
    limits = [rule.max_loss] if rule.max_empty is None else [rule.max_loss, rule.max_empty]
    max_lost = _RANGE * len(queries) * np.array(limits)
    tried = _tried(queries, decisions, rule, max_lost)
    if not len(tried):  # nothing can be lost, so there is nothing to compare
        return np.ones(len(counts))
    kept, lost = np.empty((len(queries), len(tried))), np.empty((len(limits), len(queries), len(tried)))
    for column, threshold in enumerate(tried):
        mask = keep(decisions, threshold)
        kept[:, column] = mask.mean(axis=1)
        lost[0, :, column] = queries.lost(rule.metric, mask)
        lost[1:, :, column] = ~mask.any(axis=1)
    within: NDArray[np.bool_] = np.all(counts @ lost <= max_lost[:, None, None], axis=0)
    within[:, 0] = True  # the lowest candidate loses nothing
    share: NDArray[np.float64] = ((counts @ kept) * within).sum(axis=1) / within.sum(axis=1) / len(queries)
    return share


def _tried(queries: JudgedQueries, decisions: Float32, rule: ThresholdRule, max_lost: NDArray[np.float64]) -> Float32:
    """Return thresholds from the lowest candidate to the highest that some resample may allow.

    The loss may exceed the limits by half, because a resample may lose less than all queries together.

    Args:
        queries: q answerable queries.
        decisions: (q, K) decision scores.
        rule: Rule with the metric and the limits.
        max_lost: (1 or 2,) largest total loss by limit.
    """
    steps = loss_steps(queries, decisions, rule.metric)
    reach = int(np.searchsorted(steps.losses[:-1], 1.5 * max_lost[0], side="right"))
    if rule.max_empty is not None:
        empty = LossSteps.of_empty(decisions)
        highest = empty.candidates[np.searchsorted(empty.losses[:-1], 1.5 * max_lost[1], side="right") - 1]
        reach = min(reach, int(np.searchsorted(steps.candidates, highest, side="right")))
    if not len(steps.candidates):
        return steps.candidates
    tried: Float32 = steps.candidates[np.unique(np.linspace(0, max(reach - 1, 0), _THRESHOLDS).astype(int))]
    return tried
