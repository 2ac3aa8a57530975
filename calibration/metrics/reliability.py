"""Whether `relevance` comes true: of the results that say 0.3, three in ten should be relevant."""

import numpy as np
from numpy.typing import NDArray

from retrieval.release.evidence import ReliabilityBin
from retrieval.similarity import Float32

BINS = 10  # of equal width, as in Guo et al.'s own experiments with up to 15; a user reads tenths


def reliability(relevance: Float32, relevant: NDArray[np.bool_]) -> list[ReliabilityBin]:
    """Results by tenth of relevance, without empty bins; both arrays of one shape."""
    said, true = relevance.ravel().astype(np.float64), relevant.ravel()
    which = np.minimum((said * BINS).astype(int), BINS - 1)
    return [
        ReliabilityBin(
            lower=number / BINS,
            upper=(number + 1) / BINS,
            results=int(inside.sum()),
            relevance=float(said[inside].mean()),
            relevant=float(true[inside].mean()),
        )
        for number in range(BINS)
        if (inside := which == number).any()
    ]


def expected_calibration_error(bins: list[ReliabilityBin]) -> float:
    """ECE: mean distance between what is said and what is true, by results (Guo et al., ICML 2017, eq. 3)."""
    total = sum(each.results for each in bins)
    return sum(each.results * abs(each.relevance - each.relevant) for each in bins) / total
