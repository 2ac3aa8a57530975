"""The papers' measures of embeddings: isotropy, spectrum, separation, familiarity, and transformations.

The power law in the spectrum of embeddings (query embeddings paper, Appendix A). The paper fits λ_k ≈ C·k^−β to the
eigenvalues of rank k ≥ k_min and leaves three definitions open. They are read as follows:

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

Transformations that make embeddings more isotropic (thresholds paper, §2.5 and Table 7). Each is fitted on the
documents and applies to queries as well; `Projection.apply` scales the result to unit length. The paper finds that they
raise isotropy and not accuracy.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from threadpoolctl import threadpool_limits

from taugate.policy.arrays import CorpusVectors, Float32, Float64, moments
from taugate.release.evidence import Interval, IsotropyRecord
from taugate.retrieval.vectors import Projection

MIN_TAIL = 10  # eigenvalues, as in the paper
_BOOTSTRAPS = 1000
_MIN_SHARE = 1e-12  # of the largest eigenvalue: float32 vectors vary by so much in directions that they do not use
_EQUAL = 1e-9  # distances that differ by less are equal; the longest tail among them is taken

_BLOCK_NUMBERS = 1 << 22  # distances held at a time: 32 MB

QUERIES, PARAPHRASES = 10, 3  # m and n of the query embeddings paper, §6.2

_MIN_VARIANCE = 1e-9  # of the largest variance: float32 vectors vary by less in directions that they do not use


def isotropy(vectors: CorpusVectors) -> IsotropyRecord:
    """Return I_A and I_B (thresholds paper, Appendix A.3) of (n, d) float32 vectors of unit length, n ≥ 1, d ≥ 2.

    Both are computed from the mean and the d × d scatter of V in float64, without an n × n matrix or a decomposition
    of V.
    """
    # One thread: a product's last bits depend on how it is split, and a release's digest holds the result.
    with threadpool_limits(limits=1):
        mean, scatter = moments(vectors)
        n = vectors.shape[0]
        gram = scatter + n * np.outer(mean, mean)
        return IsotropyRecord(i_a=_i_a(n, mean, gram), i_b=_i_b(scatter))


def _i_a(n: int, mean: NDArray[np.float64], gram: NDArray[np.float64]) -> float:
    """Return eq. 5: (|V| − ‖1ᵀV‖ + ½σ²_min) / (|V| + ‖1ᵀV‖ + ½σ²_max), with σ² the d eigenvalues of VᵀV.

    With fewer vectors than dimensions σ_min is 0: some direction c has cᵀv = 0 for every v, as Z(c) of eq. 4 asks.
    """
    squares = np.linalg.eigvalsh(gram)
    common = n * float(np.linalg.norm(mean))
    smallest, largest = max(0.0, float(squares[0])), float(squares[-1])
    return (n - common + 0.5 * smallest) / (n + common + 0.5 * largest)


def _i_b(scatter: NDArray[np.float64]) -> float:
    """Return eq. 6, in which n is the dimension d and Σ_D are the eigenvalues of the covariance.

    The eigenvalues are normalised to length √d (Rudman et al. §4, step 4), so the scatter gives the same result as the
    covariance. Vectors that are all equal vary in no direction and score 0.
    """
    d = len(scatter)
    variances = np.linalg.eigvalsh(scatter)
    length = float(np.linalg.norm(variances))
    if length == 0:
        return 0.0
    defect = float(np.linalg.norm(variances * np.sqrt(d) / length - 1)) / np.sqrt(2 * (d - np.sqrt(d)))
    return float(((d - defect**2 * (d - np.sqrt(d))) ** 2 - d) / (d * (d - 1)))


@dataclass(frozen=True)
class PowerLaw:
    """λ_k = exp(a)·k^−β for the ranks first … last."""

    first: int  # k_min
    last: int  # number of non-zero eigenvalues
    a: float  # intercept by ordinary least squares
    beta: float  # exponent by ordinary least squares
    error: float  # standard error of beta
    r_squared: float  # R² of the regression
    distance: float  # KS distance of the tail

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


def separation(domain: Float32, general: Float32, *, same: bool = False) -> NDArray[np.float64]:
    """Return Δ_M(D, D′), (N,) float64: for each domain text the smallest Euclidean distance to a general text.

    The paper writes a set of minima over pairs that has as many members as D, so the minimum is over D′.

    Args:
        domain: (N, d) float32 of unit length, embeddings of D.
        general: (G, d) float32 of unit length, embeddings of D′, G ≥ 1.
        same: D and D′ are one set in the same order: the distance of a text to itself does not count, G ≥ 2.
    """
    general64 = general.astype(np.float64)
    squares = np.einsum("gd,gd->g", general64, general64)
    distances = np.empty(len(domain))
    step = max(1, _BLOCK_NUMBERS // len(general64))
    # One thread: a product's last bits depend on how it is split, and the digest of a release holds what follows.
    with threadpool_limits(limits=1):
        for start in range(0, len(domain), step):
            block = domain[start : start + step].astype(np.float64)
            squared = np.einsum("nd,nd->n", block, block)[:, None] + squares - 2 * (block @ general64.T)
            if same:
                rows = np.arange(len(block))
                squared[rows, start + rows] = np.inf
            distances[start : start + len(block)] = np.sqrt(np.maximum(squared.min(axis=1), 0.0))
    return distances


def text_familiarity(texts: Float32, paraphrases: Float32) -> NDArray[np.float64]:
    """Return TF_n of each text, (m,) float64: its mean cosine similarity with its paraphrases.

    Query embeddings paper, §6.2, eq. 5.

    Args:
        texts: (m, d) float32.
        paraphrases: (m, n, d) float32, n of each text; no vector is zero.
    """
    left, right = texts.astype(np.float64), paraphrases.astype(np.float64)
    products = np.einsum("md,mnd->mn", left, right)
    lengths = np.linalg.norm(left, axis=1)[:, None] * np.linalg.norm(right, axis=2)
    means: NDArray[np.float64] = (products / lengths).mean(axis=1)
    return means


def domain_familiarity(texts: Float32, paraphrases: Float32) -> float:
    """Return DF_m, the mean of TF_n over m texts of a domain (query embeddings paper, §6.2, eq. 6).

    Args:
        texts: (m, d) float32.
        paraphrases: (m, n, d) float32.
    """
    return float(text_familiarity(texts, paraphrases).mean())


def standardisation(documents: CorpusVectors) -> Projection:
    """Subtract the mean, and give each coordinate a standard deviation of 1 (Timkey and van Schijndel 2021)."""
    mean, scatter = moments(documents)
    return Projection(mean, np.diag(_scales(np.diag(scatter) / documents.shape[0])))


def full_whitening(documents: CorpusVectors) -> Projection:
    """Subtract the mean, and give each principal component a variance of 1 (Jung et al. 2023)."""
    mean, variances, axes = _components(documents)
    return Projection(mean, axes * _scales(variances))


def top_removal(documents: CorpusVectors) -> Projection:
    """Subtract the mean and the first ⌈d / 100⌉ principal components (Mu et al. 2017, who propose about d / 100)."""
    mean, _, axes = _components(documents)
    top = axes[:, -math.ceil(len(mean) / 100) :]
    return Projection(mean, np.eye(len(mean)) - top @ top.T)


def _components(documents: CorpusVectors) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return mean, (d,), variances, (d,) ascending, and the axes in the columns of (d, d)."""
    with threadpool_limits(limits=1):
        mean, scatter = moments(documents)
        variances, axes = np.linalg.eigh(scatter / documents.shape[0])
    return mean, variances, axes


def _scales(variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / σ of (d,) variances, and 0 for directions without variance."""
    used = variances > _MIN_VARIANCE * variances.max()
    return np.divide(1.0, np.sqrt(np.where(used, variances, 1.0)), out=np.zeros_like(variances), where=used)


TRANSFORMATIONS: Mapping[str, Callable[[CorpusVectors], Projection]] = {
    "standardised": standardisation,
    "whitened": full_whitening,
    "top components removed": top_removal,
}
