"""Exploration shows a few results below the threshold, so that users can tell whether the threshold drops answers.

The results are chosen by a hash of release, query and result instead of a random draw. The same query shows the same
results until the next release, so that caches and replicas agree.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_EXPLORED = 0.1  # share of the dropped results; more would undo the threshold


@dataclass(frozen=True, slots=True)
class Exploration:
    """Selects the dropped results to show.

    Attributes:
        share: Probability that a dropped result is shown, 0…1.
        release: Id of the release, used as the seed.
    """

    share: float
    release: str

    def draw(self, text: str, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for each dropped result of a query whether it is shown, (n,) bool.

        Args:
            text: Text of the query.
            positions: (n,) int64 positions of the results, which are fixed for a release.
        """
        seed = hashlib.sha256(f"{self.release}\n{text}".encode())
        return np.fromiter((self._shows(seed, position) for position in positions.tolist()), dtype=np.bool_)

    def _shows(self, seed: "hashlib._Hash", position: int) -> bool:
        digest = seed.copy()
        digest.update(b"\n%d" % position)
        return int.from_bytes(digest.digest()[:8]) < self.share * 2**64
