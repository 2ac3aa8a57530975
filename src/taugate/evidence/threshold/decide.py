"""Decides the policy in force from scored queries: its kind, its τ and its guarantee."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from taugate.errors import InputError
from taugate.evidence.measure import Rows, bootstrapped
from taugate.evidence.ranking import JudgedQueries, ScoredQueries
from taugate.evidence.risk import words
from taugate.evidence.risk.certify import CertifiedThreshold
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.policy_choice import CalibrationQueries, choose_policy
from taugate.policy.arrays import Float32
from taugate.policy.names import Metric, PolicyKind
from taugate.policy.policy import keep
from taugate.release.evidence import Alternative, EvidenceRecord, Level
from taugate.release.names import METHODS
from taugate.release.outcome_records import PolicyRecord, UnrestrictedThreshold

PERCENTILES = np.arange(101)


@dataclass(frozen=True)
class PercentileThreshold:
    """The papers' threshold: `tau` in units of similarity, unrounded, and `psi`, its percentile ψ in Γ."""

    tau: float
    psi: int


def gamma(queries: JudgedQueries, rows: Rows) -> Float32:
    """Return Γ, the lowest top-K similarity γ_j in each bootstrap j of (m, l) rows, (m,) float32."""
    lowest: Float32 = queries.top.scores[:, -1][rows].min(axis=1)
    return lowest


def bootstrap_threshold(queries: JudgedQueries, rows: Rows, metric: Metric = "accuracy") -> PercentileThreshold:
    """Return the highest τ(ψ), ψ = 0, 1, …, 100, whose mean metric is not below the unthresholded 95 % interval.

    τ(0) loses nothing in any bootstrap, because no similarity is below the smallest of Γ. It is also the result if the
    unthresholded mean is below its own interval: with accuracy near 1, the 2.5th percentile can be 1 (thresholds paper,
    §2.2). `rows` are (m, l) positions in bootstraps.
    """
    holds = _stays_within_interval(queries, rows, metric)
    candidates = np.percentile(gamma(queries, rows), PERCENTILES).tolist()
    psi = next((psi for psi in reversed(PERCENTILES.tolist()) if holds(candidates[psi])), 0)
    return PercentileThreshold(candidates[psi], psi)


def _stays_within_interval(queries: JudgedQueries, rows: Rows, metric: Metric) -> Callable[[float], bool]:
    """Return what tells whether the mean metric at a τ is not below the unthresholded 95 % interval."""
    lower = bootstrapped(queries.metric(metric), rows).lower
    weights = np.bincount(rows.ravel(), minlength=len(queries))

    def holds(tau: float) -> bool:
        total = weights @ queries.metric(metric, keep(queries.top.scores, np.float32(tau)))
        return bool(total / rows.size >= lower - 1e-12)  # rounding of a mean of means

    return holds


def unrestricted_threshold(queries: JudgedQueries, rows: Rows, metric: Metric = "accuracy") -> float | None:
    """Return the highest similarity at which the metric stays within the interval; None if not even the lowest does.

    The metric never rises with τ, so half of the similarities are ruled out at a time. Arguments are those of
    `bootstrap_threshold`.
    """
    holds = _stays_within_interval(queries, rows, metric)
    candidates = np.unique(queries.top.scores).tolist()
    count = bisect_left(candidates, True, key=lambda tau: not holds(tau))
    return candidates[count - 1] if count else None


def with_unrestricted(policy: PolicyRecord, evidence: CalibrationQueries, measured_on: ScoredQueries) -> PolicyRecord:
    """Add the reading of the papers' rule that does not depend on Γ; other policies stay as they are.

    Kept results and losses are measured on `measured_on`, held out if possible.
    """
    if policy.psi is None:
        return policy
    calibration = evidence.scored.judged.take(evidence.calibration)
    tau = unrestricted_threshold(calibration, evidence.rows, policy.metric)
    if tau is None:
        return policy
    kept = measured_on.kept(policy.kind, np.float32(tau))
    lost = measured_on.judged.lost(policy.metric, kept).mean()
    record = UnrestrictedThreshold(tau=tau, kept_fraction=float(kept.mean()), loss=float(lost))
    return policy.model_copy(update={"unrestricted": record})


def decide_policy(rule: ThresholdRule, evidence: CalibrationQueries) -> PolicyRecord:
    """Apply a rule and return its policy, or the policy `none` if nothing can be certified.

    A fixed threshold is not changed. Raises InputError if the rule cannot be applied to these queries.
    """
    queries = evidence.scored.judged.take(evidence.calibration)
    k = queries.grades.shape[1]
    method = METHODS[rule.method]
    if method.of_papers:
        threshold = bootstrap_threshold(queries, evidence.rows, rule.metric)
        by_query = EvidenceRecord(unit="query", units=len(queries), design_effect=evidence.units.design_effect)
        return _record(
            rule, k, "similarity", threshold.tau, psi=threshold.psi, guarantee=words.papers(k), evidence=by_query
        )
    if not method.certifies:
        if rule.score is not None and rule.score.needs_model and evidence.scored.relevance is None:
            raise InputError(
                f"--policy {rule.policy} --tau {rule.tau:g}: no model of relevance could be fitted to estimate "
                "probabilities; use --policy similarity, or omit --tau"
            )
        return _record(rule, k, cast(PolicyKind, rule.policy), rule.tau, guarantee=words.FIXED)
    _check_hits(queries, "")
    chosen, (certified, *further), choice = choose_policy(rule, evidence)
    _check_hits(evidence.scored.judged.take(chosen.queries), " that certify")
    levels = [_level(threshold) for threshold in (certified, *further)] if further else []
    if certified.tau is None:
        guarantee = f"Nothing is certified: {words.shortage(rule, certified.certificates, levels)}."
    else:
        guarantee = words.guarantee(rule, certified.certificates, k, evidence.units.drawn)
    return _record(
        rule,
        k,
        "none" if certified.tau is None else chosen.kind,
        certified.tau,
        guarantee=guarantee,
        certificates=certified.certificates,
        choice=choice,
        levels=levels,
        evidence=evidence.units.take(chosen.queries).record,
    )


def _level(certified: CertifiedThreshold) -> Level:
    """Record the threshold certified for one of several largest losses."""
    loss = certified.certificates[0]
    return Level(max_loss=loss.most, tau=certified.tau, loss=loss.loss, bound=loss.bound)


def _check_hits(queries: JudgedQueries, role: str) -> None:
    if not queries.accuracy().any():
        raise InputError(
            f"none of the {len(queries)} calibration queries{role} has a relevant document in its top "
            f"{queries.grades.shape[1]}, so there is nothing to certify; check the qrels, raise --k, or use another "
            "encoder"
        )


def _record(rule: ThresholdRule, k: int, kind: PolicyKind, tau: float | None, **facts: object) -> PolicyRecord:
    certified = METHODS[rule.method].certifies
    return PolicyRecord.model_validate(
        {
            "kind": kind,
            "tau": tau,
            "k": k,
            "method": rule.method,
            "statement": rule.statement,
            "metric": rule.metric,
            "max_loss": rule.max_loss if certified else None,
            "max_empty": rule.max_empty,
            "confidence": rule.confidence,
            "psi": None,
            "certificates": [],
            "choice": None,
            **facts,
        }
    )


def alternatives(rule: ThresholdRule, evidence: CalibrationQueries, measured_on: ScoredQueries) -> list[Alternative]:
    """Apply the papers' rule and the two statements of risk control, except the rule in force.

    Kept results and losses are measured on `measured_on`, held out if possible.
    """
    limits = {name: getattr(rule, name) for name in ("metric", "max_loss", "max_empty", "confidence")}
    rules = [
        ThresholdRule("bootstrap", "similarity", metric=rule.metric),
        ThresholdRule("risk-control", "auto", guarantee="high-probability", **limits),
        ThresholdRule("risk-control", "auto", guarantee="expected-loss", **limits),
    ]
    return [
        outcome
        for alternative in rules
        if (alternative.method, alternative.guarantee) != (rule.method, rule.guarantee)
        and (outcome := _outcome(alternative, evidence, measured_on)) is not None
    ]


def _outcome(rule: ThresholdRule, evidence: CalibrationQueries, measured_on: ScoredQueries) -> Alternative | None:
    try:
        policy = decide_policy(rule, evidence)
    except InputError:  # a rule that cannot be applied is not an alternative
        return None
    kept = measured_on.kept(policy.kind, policy.threshold)
    return Alternative(
        method=policy.method,
        statement=policy.statement,
        policy=policy.kind,
        tau=policy.tau,
        psi=policy.psi,
        max_loss=policy.max_loss,
        max_empty=policy.max_empty,
        guarantee=policy.guarantee,
        kept_fraction=float(kept.mean()),
        loss=float(measured_on.judged.lost(rule.metric, kept).mean()),
    )
