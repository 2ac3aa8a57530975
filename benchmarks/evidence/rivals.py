"""Other tests of a bounded mean by document: what they would pass, on the same documents."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.evidence.verdicts import PValues
from benchmarks.evidence.worlds import Drawn

_RESAMPLES = 1000


def ordered(drawn: Drawn, margin: float) -> PValues:
    """Learned-Miller and Thomas, "A new confidence interval for the mean of a bounded random variable", 2019, §3.

    The limit is a quantile of the mean that the sample and the largest value possible have with the gaps between
    ordered uniform numbers for weights. That it holds for every distribution is a conjecture.
    """
    rng = np.random.default_rng(0)
    found = []
    for values, counts in _kinds(drawn):
        weights = rng.gamma(np.append(counts, 1.0), size=(_RESAMPLES, len(counts) + 1))
        means = weights @ np.append(values, 1.0) / weights.sum(axis=1)
        found.append((means > margin).mean())
    return np.array(found)


def student(drawn: Drawn, margin: float) -> PValues:
    """The t-test of document means, which no theorem bears out for rare losses."""
    terms = drawn.sums / drawn.sizes
    documents = terms.shape[1]
    error = np.maximum(terms.std(axis=1, ddof=1) / np.sqrt(documents), 1e-12)
    found: PValues = stats.t.cdf((terms.mean(axis=1) - margin) / error, documents - 1)
    return found


def bootstrapped(drawn: Drawn, margin: float) -> PValues:
    """The percentile bootstrap of documents (Davison and Hinkley, 1997, §5.3.1), which gives no weight to the unseen."""
    rng = np.random.default_rng(0)
    found = []
    for values, counts in _kinds(drawn):
        documents = int(counts.sum())
        means = rng.multinomial(documents, counts / documents, size=_RESAMPLES) @ values / documents
        found.append((means > margin).mean())
    return np.array(found)


def _kinds(drawn: Drawn) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Distinct document means of each trial, with how many documents have each."""
    kinds = (np.unique(each, return_counts=True) for each in drawn.sums / drawn.sizes)
    return [(values, counts.astype(np.float64)) for values, counts in kinds]
