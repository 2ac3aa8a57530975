"""The rule that keeps or drops a result. One comparator, score ≥ τ in float32, for every query and everywhere."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from retrieval.similarity import Float32

PolicyKind = Literal["similarity", "none"]


@dataclass(frozen=True)
class Policy:
    """`similarity` keeps what scores at least τ; `none` keeps everything (no threshold could be certified).

    tau: in units of cosine similarity, None for `none`; k: the K that τ was calibrated at.
    """

    kind: PolicyKind
    tau: float | None
    k: int

    @property
    def threshold(self) -> np.float32 | None:
        """τ as it is compared: rounded once to float32, so that a score equal to it is kept on every machine."""
        return None if self.tau is None else np.float32(self.tau)


def keep(scores: Float32, threshold: np.float32 | None) -> NDArray[np.bool_]:
    """Which results are kept; scores: float32 of any shape. A threshold of None keeps all, 0.0 is a threshold."""
    if threshold is None:
        return np.ones(scores.shape, dtype=np.bool_)
    return scores >= threshold
