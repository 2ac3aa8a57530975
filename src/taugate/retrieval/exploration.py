"""Exploration: a few results below the threshold are shown, so that users can say whether it drops answers.

Which ones is not drawn at random but from a hash of release, query and result: the same query shows the same results
until the next release, so that caches and replicas agree.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_EXPLORED = 0.1  # of the results that the threshold drops: more would undo it


@dataclass(frozen=True, slots=True)
class Exploration:
    """Which dropped results are shown.

    Attributes:
        share: The probability of each, in 0…1.
        release: Id of the release, the seed.
    """

    share: float
    release: str

    def draw(self, text: str, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Draw for each dropped result of a query whether it is shown, (n,) bool.

        Args:
            text: Of the query.
            positions: (n,) int64 positions of the results, which a release never changes.
        """
        seed = hashlib.sha256(f"{self.release}\n{text}".encode())
        return np.fromiter((self._shows(seed, each) for each in positions.tolist()), dtype=np.bool_)

    def _shows(self, seed: "hashlib._Hash", position: int) -> bool:
        drawn = seed.copy()
        drawn.update(b"\n%d" % position)
        return int.from_bytes(drawn.digest()[:8]) < self.share * 2**64
