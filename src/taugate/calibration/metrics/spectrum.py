"""The power law in the spectrum of embeddings (query embeddings paper, Appendix A).

The paper fits λ_k ≈ C·k^−β to the eigenvalues of rank k ≥ k_min and leaves three definitions open. They are read as
follows:

- "the KS distance between the empirical tail and its fitted curve": both are curves over ranks. Both are summed up to
  each rank k and divided by their totals; the distance is the largest difference. Compared as a sample of values
  (Clauset et al. 2009), a tail of n would be at least 1/n away from any law, so the longest tail would win and β would
  be below 10; the paper's β of 82.7 would be impossible.
- "parametric bootstrap under the fitted power law": as in Clauset et al. 2009, §4.1, as many independent values as the
  tail has are drawn from the law, sorted, and fitted on the same ranks. In a rank-size law the rank of a value is
  uniform: λ = C·u^−β for u between k_min − ½ and the last rank + ½. Eigenvalues of a covariance are not independent
  draws: they repel each other and lie on a smooth curve, far more evenly than a sample. So nearly every spectrum
      passes,
  as every one in the paper does, and p reveals breaks in the tail, not a bend.
- "OLS-based 95 % interval": β̂ ± t·s.e. with n − 2 degrees of freedom.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from threadpoolctl import threadpool_limits

from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.vectors.similarity import Float32, moments

Float64 = NDArray[np.float64]

MIN_TAIL = 10  # eigenvalues, as in the paper
_BOOTSTRAPS = 1000
_MIN_SHARE = 1e-12  # of the largest eigenvalue: float32 vectors vary by so much in directions that they do not use
_EQUAL = 1e-9  # distances that differ by less are equal; the longest tail among them is taken


@dataclass(frozen=True)
class PowerLaw:
    """λ_k = exp(a)·k^−β for the ranks first … last.

    Attributes:
        first: k_min.
        last: Number of non-zero eigenvalues.
        a: Intercept by ordinary least squares.
        beta: Exponent by ordinary least squares.
        error: Standard error of beta.
        r_squared: R² of the regression.
        distance: KS distance of the tail.
    """

    first: int
    last: int
    a: float
    beta: float
    error: float
    r_squared: float
    distance: float

    @classmethod
    def fit(cls, eigenvalues: Float64, first: int) -> Self:
        """Fit the tail from rank `first` on; eigenvalues (r,) are descending and positive, r ≥ first + 2."""
        tail = eigenvalues[first - 1 :]
        x, y = np.log(np.arange(first, len(eigenvalues) + 1)), np.log(tail)
        across, down = x - x.mean(), y - y.mean()
        variation, total = float(across @ across), float(down @ down)
        slope = float(across @ down) / variation
        residual = down - slope * across
        unexplained = float(residual @ residual)
        return cls(
            first,
            len(eigenvalues),
            float(y.mean() - slope * x.mean()),
            -slope,
            float(np.sqrt(unexplained / (len(tail) - 2) / variation)),
            1 - unexplained / total if total > 0 else 1.0,
            float(_distances(tail[None], slope * across[None])[0]),
        )

    @property
    def interval(self) -> Interval:
        """β with its 95 % interval."""
        half_width = float(stats.t.ppf(0.975, self.last - self.first - 1)) * self.error
        return Interval(mean=self.beta, lower=self.beta - half_width, upper=self.beta + half_width)

    def p_value(self, seed: int, bootstraps: int = _BOOTSTRAPS) -> float:
        """Return the share of bootstrapped tails from this law that are as far from their own fit as the real tail."""
        x = np.log(np.arange(self.first, self.last + 1))
        across = x - x.mean()
        rng = np.random.default_rng(seed)
        ranks = np.sort(rng.uniform(self.first - 0.5, self.last + 0.5, size=(bootstraps, len(x))), axis=1)
        logs = -self.beta * np.log(ranks)
        slopes = (logs - logs.mean(axis=1, keepdims=True)) @ across / (across @ across)
        distances = _distances(np.exp(logs - logs.max(axis=1, keepdims=True)), slopes[:, None] * across)
        return float((1 + np.sum(distances >= self.distance)) / (1 + bootstraps))


def spectrum(vectors: Float32) -> Float64:
    """Return the non-zero eigenvalues of the sample covariance, (r,) float64, descending.

    C = Xᶜᵀ·Xᶜ / (n − 1) of mean-centred embeddings.

    Args:
        vectors: (n, d) float32, n ≥ 2.
    """
    with threadpool_limits(limits=1):
        scatter = moments(vectors)[1]
        values = np.linalg.eigvalsh(scatter / (len(vectors) - 1))[::-1]
    rank = min(len(values), len(vectors) - 1)
    kept: Float64 = values[:rank][values[:rank] > _MIN_SHARE * max(values[0], 0.0)].astype(np.float64)
    return kept


def power_law(eigenvalues: Float64) -> PowerLaw | None:
    """Fit the tail with the smallest KS distance; None with fewer than ten eigenvalues.

    Args:
        eigenvalues: (r,) float64, descending and positive.
    """
    longest = len(eigenvalues) - MIN_TAIL + 1
    if longest < 1:
        return None
    laws = [PowerLaw.fit(eigenvalues, first) for first in range(1, longest + 1)]
    smallest = min(law.distance for law in laws)
    return next(law for law in laws if law.distance <= smallest + _EQUAL)


def _distances(tails: Float64, logs: Float64) -> Float64:
    """Return the KS distance between (b, n) tails and the (b, n) logarithms of their fits, (b,)."""
    fits = np.exp(logs - logs.max(axis=1, keepdims=True))
    empirical = np.cumsum(tails, axis=1) / tails.sum(axis=1, keepdims=True)
    fitted = np.cumsum(fits, axis=1) / fits.sum(axis=1, keepdims=True)
    largest: Float64 = np.abs(empirical - fitted).max(axis=1)
    return largest
