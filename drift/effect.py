"""How far apart two proportions are, on a scale where a step means the same everywhere: Cohen's h.

J. Cohen, Statistical Power Analysis for the Behavioral Sciences, 2nd ed., 1988, chapter 6, which calls .2 small, .5
medium and .8 large. The arcsine makes the variance of an estimated proportion 1/n whatever the proportion is, so that
one margin fits a share of 1 % and a share of 50 %. The mean of a variable in 0…1 varies less than a proportion.
"""

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


def effect(share: Float64, reference: Float64) -> Float64:
    """Cohen's h, positive where `share` is the larger one; both in 0…1, of shapes that go together."""
    return 2 * (np.arcsin(np.sqrt(share)) - np.arcsin(np.sqrt(reference)))


def shifted(reference: Float64, effects: Float64 | float) -> Float64:
    """The share that lies so far from `reference`, 0 or 1 where there is none that far."""
    return np.sin(np.clip(np.arcsin(np.sqrt(reference)) + effects / 2, 0, np.pi / 2)) ** 2
