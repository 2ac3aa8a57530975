"""Why a reply cannot be compared with the calibration, and exploration, which shows some results below the threshold.

Labels, drift detection, explanations and clients read this reason, and guess nothing from what a reply lacks.

Exploration shows a few results below the threshold, so that users can tell whether the threshold drops answers. The
results are chosen by a hash of release, query and result instead of a random draw. The same query shows the same
results until the next release, so that caches and replicas agree.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

NOT_COMPARABLE = "why drift detection and labels do not compare the reply with the calibration; absent if they do"

MAX_EXPLORED = 0.1  # share of the dropped results; more would undo the threshold


class NotComparable(StrEnum):
    """A reason; of several that apply, the first of this list is given. Names are those of replies and of the log."""

    UNREADABLE = "unreadable"  # the encoder does not know most of the text
    TRUNCATED = "truncated"  # the encoder reads only the beginning of the text
    FILTERED = "filtered"  # a filter, of the request or of the API key, selects the documents
    VECTOR = "vector"  # the query is a vector of the client, and the calibration encoded its queries
    PRECISION = "precision"  # the encoder in use has another precision than the calibrated one
    FALLBACK = "fallback"  # the first stage's results, because the second stage did not answer
    FEWER_RESULTS = "fewer_than_k"  # another retriever gave fewer results than the calibration's K
    THRESHOLD = "threshold"  # the request has its own threshold
    K = "k"  # the request considers more or fewer results than the calibration's K
    GROUPED = "grouped"  # results are grouped by document, which reach further down the list


# With these, the calibration's K results have comparable scores, and only others of them are shown.
SAME_SCORES = frozenset({NotComparable.THRESHOLD, NotComparable.K, NotComparable.GROUPED})
# With these, a reply may be calibrated all the same: by a stratum, by the first stage, or by what the policy covers.
MAY_BE_CALIBRATED = SAME_SCORES - {NotComparable.THRESHOLD} | {NotComparable.FILTERED, NotComparable.FALLBACK}


@dataclass(frozen=True, slots=True)
class Exploration:
    """Selects the dropped results to show."""

    share: float  # probability that a dropped result is shown, 0…1
    release: str  # id of the release, used as the seed

    def draw(self, text: str, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for each dropped result of a query whether it is shown, (n,) bool.

        Args:
            positions: (n,) int64 positions of the results, which are fixed for a release.
        """
        seed = hashlib.sha256(f"{self.release}\n{text}".encode())
        return np.fromiter((self._shows(seed, position) for position in positions.tolist()), dtype=np.bool_)

    def _shows(self, seed: "hashlib._Hash", position: int) -> bool:
        digest = seed.copy()
        digest.update(b"\n%d" % position)
        return int.from_bytes(digest.digest()[:8]) < self.share * 2**64
