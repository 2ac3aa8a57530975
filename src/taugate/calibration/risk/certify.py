"""The largest τ whose loss is certified, with its certificate; or how many queries are missing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from taugate.calibration.risk import bounds
from taugate.calibration.risk.e_values import log_e, worst_of_queries
from taugate.calibration.risk.steps import LossSteps
from taugate.calibration.settings.rules import ThresholdRule
from taugate.retrieval.release.evidence import Certificate


@dataclass(frozen=True)
class LossLimit:
    """A loss, and the largest value that it may have.

    Attributes:
        name: Accuracy, ndcg or empty.
        steps: The loss as a function of τ.
        most: δ, the largest mean loss allowed.
        found: Mean of the metric without the cut, what there is to lose, None for empty.
    """

    name: str
    steps: LossSteps
    most: float
    found: float | None = None


@dataclass(frozen=True)
class CertifiedThreshold:
    """A certified threshold with what is known of it.

    Attributes:
        tau: None where nothing can be certified.
        certificates: One for each limit, in their order.
    """

    tau: float | None
    certificates: list[Certificate]


def certify(limits: Sequence[LossLimit], rule: ThresholdRule) -> CertifiedThreshold:
    """Find the largest observed decision score that passes every limit, by fixed-sequence testing from the lowest.

    Several limits are one statement: its p-value is the largest of theirs (intersection–union test, Berger 1982), so it
    holds with the rule's confidence as a whole.

    Args:
        limits: Losses of the same queries.
        rule: Kind of statement, and confidence.
    """
    candidates = np.unique(np.concatenate([limit.steps.candidates for limit in limits]))
    passed = np.ones(len(candidates), dtype=np.bool_)
    for limit in limits:
        passed &= _passes(limit, rule)[limit.steps.places(candidates)]
    first_failure = len(candidates) if passed.all() else int(passed.argmin())
    tau = None if first_failure == 0 else float(candidates[first_failure - 1])
    return CertifiedThreshold(tau, [certificate(limit, tau, rule) for limit in limits])


def p_values(steps: LossSteps, most: float) -> NDArray[np.float64]:
    """Return the p-value of "the share of queries lost is above `most`" for each step of the staircase.

    The first is that of a τ with no candidate below it, where nothing is lost; the others those of the smallest τ above
    each candidate. Where queries share documents it is the inverse of an e-value (`e_values`), else the exact binomial
    one, or Hoeffding–Bentkus for losses between 0 and 1.

    Args:
        steps: The loss as a function of τ.
        most: δ, in 0…1.

    Returns:
        (c + 1,) float64.
    """
    if steps.documents is not None:
        found = log_e(steps.documents.wealth, worst_of_queries(most, steps.documents.sizes))
        return np.exp(-np.maximum(0.0, found))
    p_value = bounds.exact_p_values if steps.binary else bounds.bounded_p_values
    return p_value(steps.losses, steps.queries, most)


def upper_limit(steps: LossSteps, tau: float | None, confidence: float) -> float:
    """Return the upper confidence limit of the share of queries lost at τ, one-sided.

    Args:
        steps: The loss as a function of τ.
        tau: None without a cut.
        confidence: Of the limit, in 0…1.
    """
    place = 0 if tau is None else int(steps.places(np.array([tau], dtype=np.float32))[0])
    if steps.documents is None:
        return bounds.upper_limit(float(steps.losses[place]), steps.queries, confidence, binary=steps.binary)
    wealth, sizes, enough = steps.documents.wealth[:, place], steps.documents.sizes, -math.log(1 - confidence)

    def short(most: float) -> float:
        return float(log_e(wealth, worst_of_queries(most, sizes))) - enough

    highest = 1 - 1e-9
    mean = float(steps.losses[place]) / steps.queries
    if mean >= highest or short(highest) < 0:
        return 1.0
    return float(optimize.brentq(short, mean, highest, xtol=1e-9))


def queries_needed(limit: LossLimit, rule: ThresholdRule) -> int:
    """Return the fewest queries, about documents as these are, with which the limit can be certified at all.

    Args:
        limit: Loss and its largest value.
        rule: Kind of statement, and confidence.
    """
    documents, alpha = limit.steps.documents, 1 - rule.confidence
    if documents is None:
        if rule.statement == "expected-loss":
            return bounds.queries_for_expected(limit.most)
        return bounds.queries_for_confidence(limit.most, rule.confidence)
    if rule.statement == "expected-loss":
        return math.ceil(int(documents.sizes.max()) * (1 / limit.most - 1) - 1e-9)
    worst = worst_of_queries(limit.most, documents.sizes)

    def short(factor: float) -> float:
        return float(log_e(np.zeros(len(worst)), factor * worst)) + math.log(alpha)

    most = 1.0
    while short(most) < 0:
        most *= 2
    factor = float(optimize.brentq(short, 0.0, most, xtol=1e-6))
    return math.ceil(factor * limit.steps.queries)


def _passes(limit: LossLimit, rule: ThresholdRule) -> NDArray[np.bool_]:
    """Test each step of the staircase; (c + 1,) bool."""
    steps = limit.steps
    if rule.statement == "expected-loss":
        largest = 1 if steps.documents is None else int(steps.documents.sizes.max())
        return bounds.expected(steps.losses, steps.queries, limit.most, largest)
    passed: NDArray[np.bool_] = p_values(steps, limit.most) <= (1 - rule.confidence) * (1 + 1e-9)
    return passed


def certificate(limit: LossLimit, tau: float | None, rule: ThresholdRule) -> Certificate:
    """Write down what is known of a limit at τ.

    Args:
        limit: Loss and its largest value.
        tau: None without a cut.
        rule: Kind of statement, and confidence.
    """
    steps = limit.steps
    n, largest = steps.queries, 1 if steps.documents is None else int(steps.documents.sizes.max())
    loss = 0.0 if tau is None else float(steps.at(np.array([tau], dtype=np.float32))[0])
    upper = upper_limit(steps, tau, rule.confidence)
    return Certificate(
        limit=limit.name,
        most=limit.most,
        queries=n,
        effective_queries=float(n) if steps.documents is None else n**2 / float(np.square(steps.documents.sizes).sum()),
        unit="query" if steps.documents is None else "document",
        units=n if steps.documents is None else len(steps.documents.sizes),
        found=limit.found,
        loss=loss / n,
        bound=(loss + largest) / (n + largest) if rule.statement == "expected-loss" else upper,
        upper=upper,
        queries_needed=queries_needed(limit, rule),
    )
