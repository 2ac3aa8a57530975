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
    """A loss and the largest value it may have; name: accuracy, ndcg or empty.

    design_effect: by how much repeated documents widen its confidence limit, where the rule allows for them.
    """

    name: str
    steps: LossSteps
    most: float
    design_effect: float = 1.0


@dataclass(frozen=True)
class Certified:
    """τ, None where nothing can be certified, with what is known of it; `certificates` in the order of the limits."""

    tau: float | None
    certificates: list[Certificate]


def certify(limits: Sequence[Limited], rule: Rule) -> Certified:
    """The largest observed decision score that passes every limit, found by fixed-sequence testing from the lowest.

    Several limits are one statement: its p-value is the largest of theirs (intersection–union test, Berger 1982), so it
    holds with the rule's confidence as a whole.
    """
    candidates = np.unique(np.concatenate([limit.steps.candidates for limit in limits]))
    passed = np.ones(len(candidates), dtype=np.bool_)
    for limit in limits:
        passed &= _passes(limit.steps.at(candidates), limit, rule)
    first_failure = len(candidates) if passed.all() else int(passed.argmin())
    tau = None if first_failure == 0 else float(candidates[first_failure - 1])
    return Certified(tau, [_certificate(limit, tau, rule) for limit in limits])


def queries_needed(limit: Limited, rule: Rule) -> int:
    """The fewest queries with which the limit can be certified at all."""
    if rule.statement == "expected-loss":
        return bounds.queries_for_expected(limit.most)
    return bounds.queries_for_confidence(limit.most, rule.confidence, limit.design_effect)


def _passes(losses: NDArray[np.float64], limit: Limited, rule: Rule) -> NDArray[np.bool_]:
    n, deff = limit.steps.queries, limit.design_effect
    if rule.statement == "expected-loss":
        return bounds.expected(losses, n, limit.most)
    if limit.steps.binary:
        p = bounds.exact_p_values(losses / deff, n / deff, limit.most)
    else:
        p = bounds.bounded_p_values(losses / deff, n / deff, limit.most)
    passed: NDArray[np.bool_] = p <= (1 - rule.confidence) * (1 + 1e-9)
    return passed


def _certificate(limit: Limited, tau: float | None, rule: Rule) -> Certificate:
    n, deff = limit.steps.queries, limit.design_effect
    loss = 0.0 if tau is None else float(limit.steps.at(np.array([tau], dtype=np.float32))[0])
    if rule.statement == "expected-loss":
        bound = (loss + 1) / (n + 1)
    else:
        bound = bounds.upper_limit(loss / deff, n / deff, rule.confidence, binary=limit.steps.binary)
    return Certificate(
        limit=limit.name,
        most=limit.most,
        queries=n,
        effective_queries=n / deff,
        loss=loss / n,
        bound=bound,
        queries_needed=queries_needed(limit, rule),
    )
