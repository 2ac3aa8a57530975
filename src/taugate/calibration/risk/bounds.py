"""Two tests of "the loss is at most δ" as functions of the total loss of n queries.

The tests are monotone in the loss, and the loss is monotone in τ. Testing candidates from the lowest and stopping at
the first failure is fixed-sequence testing, which needs no correction for the number of tests (Bauer, "Multiple testing
in clinical trials", 1991; Angelopoulos et al., "Learn then Test", 2022, fixed-sequence testing). So the largest τ that
passes is the point at which the staircase crosses one number. Taking the candidates from the same queries costs
nothing: every real τ is tested, and the staircase is level between two candidates (Bates et al., JACM 2021, Theorem 1).
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Losses = NDArray[np.float64]


def expected(losses: Losses, n: int, delta: float, largest: int = 1) -> NDArray[np.bool_]:
    """Conformal risk control: test (Σ loss + 1) / (n + 1) ≤ δ for each total loss.

    The expected loss of the next query, over draws of all n + 1 queries, is then at most δ if they are exchangeable
    (Angelopoulos et al., "Conformal Risk Control", ICLR 2024, eq. 4 with B = 1, and Theorem 1).

    Args:
        losses: Total losses of the n queries, float64, any shape.
        n: Number of queries.
        delta: δ, in 0…1.
        largest: Largest number of queries on one document if documents are exchangeable and queries are not. The loss
            of a document is then Σ (loss − δ) over its queries, at most largest · (1 − δ), which is B of the same
            theorem. The loss of a later document with more queries than that may be larger.

    Returns:
        Bool in the shape of `losses`.
    """
    passed: NDArray[np.bool_] = losses + largest * (1 - delta) <= delta * n + 1e-9  # 1e-9: δ·n is rounded
    return passed


def exact_p_values(losses: Losses, n: int, delta: float) -> NDArray[np.float64]:
    """Return the exact p-value of "the loss is above δ" for losses of 0 or 1: P(Binomial(n, δ) ≤ Σ loss).

    Args:
        losses: Total losses of the n queries, float64, any shape.
        n: Number of queries.
        delta: δ, in 0…1.

    Returns:
        float64 in the shape of `losses`.
    """
    p: NDArray[np.float64] = special.betainc(np.maximum(n - losses, 1e-12), losses + 1, 1 - delta)
    return np.where(losses >= n, 1.0, p)


def upper_limit(loss: float, n: int, confidence: float) -> float:
    """Return the one-sided upper confidence limit of the mean of losses of 0 or 1 (Clopper and Pearson).

    Args:
        loss: Total loss of the n queries.
        n: Number of queries.
        confidence: Confidence of the limit, in 0…1.
    """
    return 1.0 if loss >= n else float(stats.beta.ppf(confidence, loss + 1, n - loss))


def queries_for_expected(delta: float) -> int:
    """Return the smallest number of queries with which conformal risk control can pass: 1 / (n + 1) ≤ δ."""
    return max(1, math.ceil(1 / delta - 1 - 1e-9))


def queries_for_confidence(delta: float, confidence: float) -> int:
    """Return the smallest number of queries that can certify a loss of δ: (1 − δ)ⁿ ≤ 1 − confidence."""
    return max(1, math.ceil(math.log(1 - confidence) / math.log1p(-delta) - 1e-9))
