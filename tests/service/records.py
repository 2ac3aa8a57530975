"""Records of answered searches, without a search."""

from collections.abc import Sequence

import numpy as np

from taugate.service.pipeline.record import RESULT, SHOWN, Results, SearchRecord


def record(similarities: Sequence[float], kept: int = 0) -> SearchRecord:
    """A record of a reply that shows nothing."""
    compared = np.array(similarities, dtype=np.float32)
    return SearchRecord(b"{}", np.empty(0, RESULT), compared, kept, 0, 0, None, truncated=False, unreadable=False)


def shown(positions: Sequence[int]) -> Results:
    """Results at these positions, with falling similarities."""
    results = np.empty(len(positions), SHOWN)
    results["position"], results["score"] = positions, 0.9 - 0.001 * np.arange(len(positions))
    return results
