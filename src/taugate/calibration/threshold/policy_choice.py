"""Choose the policy: which ones are certified, on which queries and with which part of the error, and which is taken.

A named policy is certified alone. `auto` has two ways. A statement that holds with high probability is made of two
policies at once, and the one that keeps fewer results is taken afterwards: with the error divided between them
(Bonferroni) whichever it is, it errs no more often than one would. So no query has to be set aside for the choice, and
a policy that fits nothing is certified by all of them. An expected loss is no statement that errs, and nothing can be
divided: one policy is chosen by queries that certify nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.risk import bounds, words
from taugate.calibration.risk.certify import CertifiedThreshold, LossLimit, certify, queries_needed
from taugate.calibration.risk.steps import LossSteps, loss_steps
from taugate.calibration.settings.rules import ThresholdRule
from taugate.calibration.threshold.calibration_queries import CalibrationQueries
from taugate.errors import InputError
from taugate.retrieval.policy.policy import PolicyKind, keep
from taugate.retrieval.release.evidence import Choice, PolicyCandidate
from taugate.retrieval.vectors.similarity import Float32

# Resamples of the queries for the standard error of a difference: an error of 1/√(2·100) = 7 % of it, which is enough.
_RESAMPLES = 100
# Up to twice the allowed loss: at it alone the choice hangs on where one or two queries fall.
_RANGE = 2.0
# Thresholds looked at in that range: 1 % of it from one to the next.
_THRESHOLDS = 100
# The first policy's part of the error, as nothing says beforehand which will keep less; what it cannot use the second
# has. What that costs is in docs/benchmarks/calibration.md, "Auto and the named policies".
_FIRST = 0.5


@dataclass(frozen=True)
class CertifiablePolicy:
    """A policy with the queries that certify it.

    Attributes:
        kind: Similarity, relative or probability.
        queries: Positions of the queries that certify it.
        rule: The rule, with the confidence that this policy needs.
    """

    kind: PolicyKind
    queries: NDArray[np.int64]
    rule: ThresholdRule

    def certify(self, evidence: CalibrationQueries) -> list[CertifiedThreshold]:
        """Certify a threshold for each largest loss of the rule, the one in force first.

        Args:
            evidence: The queries.
        """
        return [
            certify(loss_limits(rule, evidence, self.queries, self.kind), rule) for rule in self.rule.split_by_loss()
        ]


def choose_policy(
    rule: ThresholdRule, evidence: CalibrationQueries
) -> tuple[CertifiablePolicy, list[CertifiedThreshold], Choice | None]:
    """Return the policy asked for, or under `auto` the one whose certified cut keeps the fewest results.

    Args:
        rule: That was asked for.
        evidence: The queries.

    Returns:
        The policy, what is certified of it for each largest loss, and how it was chosen, None where it was named.

    Raises:
        InputError: Where it cannot be had.
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
    return _fewest(entries, certified, evidence)


def certifiable_policy(rule: ThresholdRule, kind: PolicyKind, evidence: CalibrationQueries) -> CertifiablePolicy:
    """Return the candidate of one kind: what else is certified of it needs the same queries and the same confidence.

    Args:
        rule: That was asked for.
        kind: Of the policy.
        evidence: The queries.
    """
    rule = _named(rule, evidence)
    if rule.policy == "auto" and rule.statement == "high-probability":
        return next(entry for entry in _divided(rule, evidence) if entry.kind == kind)
    return CertifiablePolicy(kind, certifying_queries(rule, kind, evidence), rule)


def certifying_queries(rule: ThresholdRule, kind: PolicyKind, evidence: CalibrationQueries) -> NDArray[np.int64]:
    """Return the positions of the queries that certify a policy: those that had no say in it.

    For a policy that uses the model they are those that did not fit it.

    Args:
        rule: That was asked for.
        kind: Of the policy.
        evidence: The queries.
    """
    if evidence.roles is None:
        return evidence.calibration
    if rule.policy == "auto" and rule.statement == "expected-loss":
        return evidence.roles.certify
    return evidence.roles.rest if kind == "probability" else evidence.calibration


def loss_limits(
    rule: ThresholdRule, evidence: CalibrationQueries, certifying: NDArray[np.int64], kind: PolicyKind
) -> list[LossLimit]:
    """Measure what the rule limits: the loss of the metric, and empty replies where they are limited.

    Args:
        rule: Metric and limits.
        evidence: The queries.
        certifying: Positions of those that certify.
        kind: Of the policy.
    """
    scored, units = evidence.scored.take(certifying), evidence.units.take(certifying)
    decisions = scored.decisions(kind)
    found = float(scored.judged.metric(rule.metric).mean())
    limited = [LossLimit(rule.metric, loss_steps(scored.judged, decisions, rule.metric, units), rule.max_loss, found)]
    if rule.max_empty is not None:
        limited.append(LossLimit(words.EMPTY, LossSteps.of_empty(decisions, units), rule.max_empty))
    return limited


def _named(rule: ThresholdRule, evidence: CalibrationQueries) -> ThresholdRule:
    """Resolve `auto` with too few queries for a model: `relative` needs none, and keeps fewer than `similarity`."""
    return replace(rule, policy="relative") if rule.policy == "auto" and evidence.roles is None else rule


def _check(rule: ThresholdRule, evidence: CalibrationQueries) -> None:
    if rule.policy == "probability" and evidence.roles is None:
        raise InputError(f"--policy probability: {evidence.lacking}")
    if rule.policy == "probability" and evidence.estimated is None:
        raise InputError(
            "--policy probability: the queries that fit the model have only irrelevant, or only relevant, documents in "
            "their top K; check the qrels, or give --policy similarity"
        )


def _divided(rule: ThresholdRule, evidence: CalibrationQueries) -> list[CertifiablePolicy]:
    """Divide the error between the two policies that are preferred.

    `similarity` is one only where there is no model.
    """
    first, second = evidence.scored.kinds[:2]
    error = 1 - rule.confidence
    leading = CertifiablePolicy(
        first, certifying_queries(rule, first, evidence), replace(rule, confidence=1 - _FIRST * error)
    )
    left = error - sum(
        _used(loss_limits(each, evidence, leading.queries, first), each) for each in leading.rule.split_by_loss()
    )
    other = CertifiablePolicy(second, certifying_queries(rule, second, evidence), replace(rule, confidence=1 - left))
    return [leading, other]


def _used(limited: Sequence[LossLimit], rule: ThresholdRule) -> float:
    """Return how often the test of these limits errs at most, which is known before any loss is seen.

    0 where there are too few queries to pass one of them at all. All have to pass, so that it errs as often as the one
    that errs most often (intersection–union test).
    """
    if any(queries_needed(limit, rule) > limit.steps.queries for limit in limited):
        return 0.0
    return max(_level(limit, 1 - rule.confidence) for limit in limited)


def _level(limit: LossLimit, error: float) -> float:
    """Return the level that one limit uses: a count moves in steps, and the largest that passes may be rarer."""
    if limit.steps.documents is not None or not limit.steps.binary:
        return error
    p_values = bounds.exact_p_values(np.arange(limit.steps.queries + 1.0), limit.steps.queries, limit.most)
    return min(error, float(p_values[p_values <= error * (1 + 1e-9)].max(initial=0.0)))


def _fewest(
    entries: Sequence[CertifiablePolicy], certified: Sequence[list[CertifiedThreshold]], evidence: CalibrationQueries
) -> tuple[CertifiablePolicy, list[CertifiedThreshold], Choice]:
    """Take the policy that keeps the smallest share of results, by queries that fitted nothing.

    else the one that lacks least.
    """
    roles = evidence.roles
    if roles is None:
        raise AssertionError("auto without roles has been refused")
    scored = evidence.scored.take(roles.rest)
    candidates, ranks = [], []
    for entry, (in_force, *_) in zip(entries, certified, strict=True):
        tau = None if in_force.tau is None else np.float32(in_force.tau)
        kept = keep(scored.decisions(entry.kind), tau).mean(axis=1)
        lacking = max(each.queries_needed / each.queries for each in in_force.certificates)
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
    """Choose the policy that keeps the fewest results near the allowed loss, by queries that certify nothing."""
    roles = evidence.roles
    if roles is None:
        raise AssertionError("auto without roles has been refused")
    scored = evidence.scored.take(np.concatenate([roles.fit, roles.choose]))
    decisions: dict[PolicyKind, Float32] = {kind: scored.decisions(kind) for kind in scored.kinds}
    if evidence.estimated is not None:  # what the model says of the queries it was fitted on is too good
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

    Another than the preferred one is taken only where it keeps less by more than one standard error of the difference
    (the one-standard-error rule, Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", 2nd ed.,
    §7.10): with few queries the fewest is as often luck.

    Args:
        queries: q answerable queries.
        decisions: (q, K) float32 decision scores of each policy, the preferred one first.
        rule: Metric and limits.
        rng: Draws the resamples.

    Returns:
        The policy, and what each of them keeps.
    """
    size = len(queries)
    rows = rng.integers(0, size, size=(_RESAMPLES, size))
    counts = np.array([np.ones(size), *(np.bincount(row, minlength=size).astype(np.float64) for row in rows)])
    kept: dict[PolicyKind, NDArray[np.float64]] = {
        kind: _kept(queries, scores, rule, counts) for kind, scores in decisions.items()
    }
    best, *others = decisions
    for kind in others:
        difference = kept[best] - kept[kind]
        if difference[0] > difference[1:].std():
            best = kind
    return best, [
        PolicyCandidate(kind=kind, kept_fraction=float(each[0]), standard_error=float(each[1:].std()))
        for kind, each in kept.items()
    ]


def _kept(
    queries: JudgedQueries, decisions: Float32, rule: ThresholdRule, counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the share of results kept, averaged over every τ whose loss is at most twice the allowed one.

    Args:
        counts: (r, q), how often each resample has each query.

    Returns:
        (r,).
    """
    limits = [rule.max_loss] if rule.max_empty is None else [rule.max_loss, rule.max_empty]
    most = _RANGE * len(queries) * np.array(limits)
    tried = _tried(queries, decisions, rule, most)
    if not len(tried):  # nothing that could be lost, and nothing to compare
        return np.ones(len(counts))
    kept, lost = np.empty((len(queries), len(tried))), np.empty((len(limits), len(queries), len(tried)))
    for column, threshold in enumerate(tried):
        mask = keep(decisions, threshold)
        kept[:, column] = mask.mean(axis=1)
        lost[0, :, column] = queries.lost(rule.metric, mask)
        lost[1:, :, column] = ~mask.any(axis=1)
    within: NDArray[np.bool_] = np.all(counts @ lost <= most[:, None, None], axis=0)
    within[:, 0] = True  # the lowest candidate loses nothing
    share: NDArray[np.float64] = ((counts @ kept) * within).sum(axis=1) / within.sum(axis=1) / len(queries)
    return share


def _tried(queries: JudgedQueries, decisions: Float32, rule: ThresholdRule, most: NDArray[np.float64]) -> Float32:
    """Return thresholds from the lowest candidate to the highest that some resample may allow.

    Half as much again as the limits: a resample may lose less than all queries together do.

    Args:
        most: Of each limit, (1 or 2,).
    """
    steps = loss_steps(queries, decisions, rule.metric)
    reach = int(np.searchsorted(steps.losses[:-1], 1.5 * most[0], side="right"))
    if rule.max_empty is not None:
        empty = LossSteps.of_empty(decisions)
        highest = empty.candidates[np.searchsorted(empty.losses[:-1], 1.5 * most[1], side="right") - 1]
        reach = min(reach, int(np.searchsorted(steps.candidates, highest, side="right")))
    if not len(steps.candidates):
        return steps.candidates
    tried: Float32 = steps.candidates[np.unique(np.linspace(0, max(reach - 1, 0), _THRESHOLDS).astype(int))]
    return tried
