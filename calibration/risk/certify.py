"""The largest τ whose loss is certified, with the certificate; or how many queries are missing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.risk import bounds
from calibration.risk.rule import Rule
from calibration.risk.steps import LossSteps
from retrieval.release.evidence import Certificate


@dataclass(frozen=True)
class Limited:
    """A loss and the largest value it may have; name: what is lost, in words."""

    name: str
    steps: LossSteps
    most: float


@dataclass(frozen=True)
class Certified:
    """τ, None where nothing can be certified, with what is known of it; `certificates` in the order of the limits."""

    tau: float | None
    certificates: list[Certificate]


def certify(limits: Sequence[Limited], rule: Rule, design_effect: float) -> Certified:
    """The largest observed decision score that passes every limit, found by fixed-sequence testing from the lowest.

    Several limits are one statement: its p-value is the largest of theirs (intersection–union test, Berger 1982), so it
    holds with the rule's confidence as a whole. design_effect: by how much repeated documents inflate the variance;
    only non-inferiority allows for it (`query_set/clusters.py`).
    """
    candidates = np.unique(np.concatenate([limit.steps.candidates for limit in limits]))
    deff = design_effect if rule.method == "non-inferiority" else 1.0
    passed = np.ones(len(candidates), dtype=np.bool_)
    for limit in limits:
        passed &= _passes(limit.steps.at(candidates), limit, rule, deff)
    first_failure = len(candidates) if passed.all() else int(passed.argmin())
    tau = None if first_failure == 0 else float(candidates[first_failure - 1])
    return Certified(tau, [_certificate(limit, tau, rule, deff) for limit in limits])


def queries_needed(limit: Limited, rule: Rule, design_effect: float) -> int:
    """The fewest queries with which the limit can be certified at all."""
    if rule.statement == "expected-loss":
        return bounds.queries_for_expected(limit.most)
    deff = design_effect if rule.method == "non-inferiority" else 1.0
    return bounds.queries_for_confidence(limit.most, rule.confidence, deff)


def _passes(losses: NDArray[np.float64], limit: Limited, rule: Rule, deff: float) -> NDArray[np.bool_]:
    n = limit.steps.queries
    if rule.statement == "expected-loss":
        return bounds.expected(losses, n, limit.most)
    if limit.steps.binary or rule.method == "non-inferiority":
        p = bounds.exact_p_values(losses / deff, n / deff, limit.most)
    else:
        p = bounds.bounded_p_values(losses, n, limit.most)
    passed: NDArray[np.bool_] = p <= 1 - rule.confidence + 1e-12
    return passed


def _certificate(limit: Limited, tau: float | None, rule: Rule, deff: float) -> Certificate:
    n = limit.steps.queries
    loss = 0.0 if tau is None else float(limit.steps.at(np.array([tau], dtype=np.float32))[0])
    if rule.statement == "expected-loss":
        bound = (loss + 1) / (n + 1)
    else:
        binary = limit.steps.binary or rule.method == "non-inferiority"
        bound = bounds.upper_limit(loss / deff, n / deff, rule.confidence, binary=binary)
    return Certificate(
        limit=limit.name,
        most=limit.most,
        queries=n,
        effective_queries=n / deff,
        loss=loss / n,
        bound=bound,
        queries_needed=queries_needed(limit, rule, deff),
    )
