"""Certifies the largest τ whose loss stays within every limit, or says how many queries are needed.

Two tests of "the loss is at most δ" as functions of the total loss of n queries. The tests are monotone in the loss,
and the loss is monotone in τ. Testing candidates from the lowest and stopping at the first failure is fixed-sequence
testing, which needs no correction for the number of tests (Bauer, "Multiple testing in clinical trials", 1991;
Angelopoulos et al., "Learn then Test", 2022, fixed-sequence testing). So the largest τ that passes is the point at
which the staircase crosses one number. Taking the candidates from the same queries costs nothing: every real τ is
tested, and the staircase is level between two candidates (Bates et al., JACM 2021, Theorem 1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.steps import LossSteps
from taugate.evidence.risk.words import EMPTY
from taugate.evidence.rules import ThresholdRule
from taugate.policy.names import NO_CUT
from taugate.release.evidence import Certificate

Losses = NDArray[np.float64]


def expected(losses: Losses, n: int, delta: float, largest: int = 1) -> NDArray[np.bool_]:
    """Conformal risk control: test (Σ loss + 1) / (n + 1) ≤ δ for each total loss.

    The expected loss of the next query, over draws of all n + 1 queries, is then at most δ if they are exchangeable
    (Angelopoulos et al., "Conformal Risk Control", ICLR 2024, eq. 4 with B = 1, and Theorem 1). Returns bool in the
    shape of `losses`. `losses` are totals of the n queries, of any shape. `largest` is the largest number of queries on
    one document if documents are exchangeable and queries are not. The loss of a document is then Σ (loss − δ) over its
    queries, at most largest · (1 − δ), which is B of the same theorem. The loss of a later document with more queries
    than that may be larger.
    """
    passed: NDArray[np.bool_] = losses + largest * (1 - delta) <= delta * n + 1e-9  # 1e-9: δ·n is rounded
    return passed


def exact_p_values(losses: Losses, n: int, delta: float) -> NDArray[np.float64]:
    """Return the exact p-value of "the loss is above δ" for losses of 0 or 1: P(Binomial(n, δ) ≤ Σ loss).

    Returns float64 in the shape of `losses`. `losses` are totals of the n queries, of any shape.
    """
    p: NDArray[np.float64] = special.betainc(np.maximum(n - losses, 1e-12), losses + 1, 1 - delta)
    return np.where(losses >= n, 1.0, p)


def upper_limit(loss: float, n: int, confidence: float) -> float:
    """Return the one-sided upper confidence limit of the mean of losses of 0 or 1 (Clopper and Pearson).

    `loss` is the total of the n queries.
    """
    return 1.0 if loss >= n else float(stats.beta.ppf(confidence, loss + 1, n - loss))


def queries_for_expected(delta: float) -> int:
    """Return the smallest number of queries with which conformal risk control can pass: 1 / (n + 1) ≤ δ."""
    return max(1, math.ceil(1 / delta - 1 - 1e-9))


def queries_for_confidence(delta: float, confidence: float) -> int:
    """Return the smallest number of queries that can certify a loss of δ: (1 − δ)ⁿ ≤ 1 − confidence."""
    return max(1, math.ceil(math.log(1 - confidence) / math.log1p(-delta) - 1e-9))


@dataclass(frozen=True)
class LossLimit:
    """A loss and its largest allowed value."""

    name: str  # "accuracy", "ndcg" or "empty"
    steps: LossSteps
    delta: float  # δ, the largest mean loss allowed


@dataclass(frozen=True)
class CertifiedThreshold:
    """A certified threshold with its evidence."""

    tau: float | None  # None if nothing can be certified
    certificates: list[Certificate]


def certify(limits: Sequence[LossLimit], rule: ThresholdRule) -> CertifiedThreshold:
    """Find the largest observed decision score that passes every limit, by fixed-sequence testing from the lowest.

    Several limits are one statement: its p-value is the largest of theirs (intersection–union test, Berger 1982), so it
    holds with the rule's confidence as a whole.
    """
    candidates = np.unique(np.concatenate([limit.steps.candidates for limit in limits]))
    candidates = candidates[candidates >= NO_CUT]  # queries that are refused are lost at every τ
    passed = np.ones(len(candidates), dtype=np.bool_)
    for limit in limits:
        passed &= statement_of(rule).passes(limit, rule)[limit.steps.places(candidates)]
    first_failure = len(candidates) if passed.all() else int(passed.argmin())
    tau = None if first_failure == 0 else float(candidates[first_failure - 1])
    return CertifiedThreshold(tau, [certificate(limit, tau, rule) for limit in limits])


def p_values(steps: LossSteps, delta: float) -> NDArray[np.float64]:
    """Return the p-value of "the share of queries lost is above δ" for each step of the staircase, (c + 1,) float64.

    The first p-value is that of a τ with no candidate below it, which loses nothing; the following ones are those of
    the smallest τ above each candidate. It is exact binomial for losses of 0 or 1 of independent queries, else the
    inverse of an e-value (`e_values`).
    """
    if steps.documents is not None:
        return np.exp(-np.maximum(0.0, steps.documents.log_e(delta)))
    return exact_p_values(steps.losses, steps.queries, delta)


def upper_loss_limit(steps: LossSteps, tau: float | None, confidence: float, requested: float = 1.0) -> float:
    """Return the one-sided upper confidence limit of the share of queries lost at τ.

    `requested` is a limit that was tested before, 1 if none was. The result is below it if that test passed. τ is None
    without a cut.
    """
    place = _place(steps, tau)
    if steps.documents is None:
        return upper_limit(float(steps.losses[place]), steps.queries, confidence)
    return steps.documents.losses_at(place).upper_limit(confidence, requested)


def _place(steps: LossSteps, tau: float | None) -> int:
    """Return the place of τ on the staircase; without a cut, only what is lost at every τ is lost."""
    return int(steps.places(np.array([NO_CUT if tau is None else tau], dtype=np.float32))[0])


class HighProbability:
    """The loss is at most δ with high probability."""

    def queries_needed(self, limit: LossLimit, rule: ThresholdRule) -> int:
        """Return the smallest number of queries, spread over documents like these, that could certify the limit."""
        documents, alpha = limit.steps.documents, 1 - rule.confidence
        if documents is None:
            return queries_for_confidence(limit.delta, rule.confidence)
        bets = documents.bets(limit.delta)
        wealth = documents.lossless(bets)

        def short(factor: float) -> float:
            return float(bets.log_e(factor * wealth)) + math.log(alpha)

        high = 1.0
        while short(high) < 0:
            high *= 2
        factor = float(optimize.brentq(short, 0.0, high, xtol=1e-6))
        return math.ceil(factor * limit.steps.queries)

    def passes(self, limit: LossLimit, rule: ThresholdRule) -> NDArray[np.bool_]:
        """Test each step of the staircase; (c + 1,) bool."""
        passed: NDArray[np.bool_] = p_values(limit.steps, limit.delta) <= (1 - rule.confidence) * (1 + 1e-9)
        return passed

    def bound(self, steps: LossSteps, loss: float, upper: float) -> float:
        """Return the bound on the share lost, from the loss at τ and the upper limit of its share."""
        return upper


class ExpectedLoss(HighProbability):
    """The loss is at most δ on average."""

    def queries_needed(self, limit: LossLimit, rule: ThresholdRule) -> int:
        """See HighProbability."""
        steps = limit.steps
        if steps.documents is None:
            return queries_for_expected(limit.delta)
        return math.ceil(steps.queries / steps.total * steps.largest * (1 / limit.delta - 1) - 1e-9)

    def passes(self, limit: LossLimit, rule: ThresholdRule) -> NDArray[np.bool_]:
        """See HighProbability."""
        return expected(limit.steps.losses, limit.steps.total, limit.delta, limit.steps.largest)

    def bound(self, steps: LossSteps, loss: float, upper: float) -> float:
        """See HighProbability."""
        return (loss + steps.largest) / (steps.total + steps.largest)


def statement_of(rule: ThresholdRule) -> HighProbability:
    """Return the test of a rule's statement."""
    return ExpectedLoss() if rule.on_average else HighProbability()


def enough_queries(limits: Sequence[LossLimit], rule: ThresholdRule) -> bool:
    """Return whether the queries could certify every limit if nothing were lost."""
    return all(statement_of(rule).queries_needed(limit, rule) <= limit.steps.queries for limit in limits)


def counting_enough(units: SamplingUnits, certifying: NDArray[np.int64], rule: ThresholdRule) -> SamplingUnits:
    """Lower the default cap until the rule's limits can be certified if nothing is lost; unchanged if none is enough.

    The choice depends on the numbers of queries alone, not on their scores or losses. `certifying` are the positions of
    the queries that certify.
    """
    if units.unit == "query" or rule.count_at_most is not None:
        return units
    for cap in (units.cap, *units.smaller_caps()):
        capped = replace(units, cap=cap)
        steps = LossSteps.of_empty(np.zeros((len(certifying), 1), dtype=np.float32), capped.take(certifying))
        if all(
            enough_queries([LossLimit(EMPTY, steps, delta) for delta in (part.max_loss, part.max_empty) if delta], part)
            for part in rule.split_by_loss()
        ):
            return capped
    return units


def certificate(limit: LossLimit, tau: float | None, rule: ThresholdRule) -> Certificate:
    """Record the evidence about a limit at τ; `tau` is None without a cut."""
    steps, documents = limit.steps, limit.steps.documents
    n, total = steps.queries, steps.total
    loss = float(steps.losses[_place(steps, tau)])
    upper = upper_loss_limit(steps, tau, rule.confidence, limit.delta)
    return Certificate(
        limit=limit.name,
        most=limit.delta,
        queries=n,
        effective_queries=float(n) if documents is None else n * total / float(np.square(documents.sizes).sum()),
        unit=steps.unit,
        units=n if documents is None else len(documents.sizes),
        found=None if limit.name == EMPTY else float(steps.losses[-1]) / total,
        loss=loss / total,
        bound=statement_of(rule).bound(steps, loss, upper),
        upper=upper,
        queries_needed=statement_of(rule).queries_needed(limit, rule),
        count_at_most=None if documents is None else documents.cap,
    )
