"""Weaviate's autocut: cut the result list at its first jump in similarity."""

import numpy as np
from numpy.typing import NDArray

from taugate.policy.arrays import Float32


def autocut(scores: Float32, jumps: int = 1) -> NDArray[np.bool_]:
    """Keep the results of each query up to a jump in their scores.

    The definition is that of `entities/autocut/autocut.go` in weaviate/weaviate. Stretch each list of scores so that
    it runs from 0 at the first result to 1 at the last, and subtract the straight line between the two. A jump is
    at which this difference is larger than at both neighbours; at the last result, larger than at the two before it. The
    list ends before the result at the jump that was asked for, and stays whole if there are fewer jumps. All sums
    are float32, as they are there. Stretching makes distances and similarities equal, so either may be given.

    Returns:
        (n, K) bool, a prefix of each row.
    """
    n, k = scores.shape
    if k <= 1:
        return np.ones((n, k), dtype=np.bool_)
    step = np.float32(1) / np.float32(k - 1)
    line = np.arange(k, dtype=np.float32) * step
    with np.errstate(invalid="ignore"):  # 0/0 if all scores are equal: not a number is larger than nothing, no jump
        stretched = (scores - scores[:, :1]) / (scores[:, -1:] - scores[:, :1])
    difference = stretched - line
    jump = np.zeros((n, k), dtype=np.bool_)
    jump[:, 1:-1] = (difference[:, 1:-1] > difference[:, :-2]) & (difference[:, 1:-1] > difference[:, 2:])
    jump[:, -1] = (difference[:, -1] > difference[:, -2]) & (difference[:, -1] > difference[:, -3 % k])
    before: NDArray[np.bool_] = jump.cumsum(axis=1) < jumps
    return before
