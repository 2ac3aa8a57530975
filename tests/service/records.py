"""Records of answered searches, without a search."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from taugate.service.pipeline.record import RESULT, SearchRecord, ShownReply


def record(similarities: Sequence[float], kept: int = 0) -> SearchRecord:
    """A record of a reply that shows nothing."""
    compared = np.array(similarities, dtype=np.float32)
    return SearchRecord(b"{}", np.empty(0, RESULT), compared, kept, 0, 0, None)


def shown(positions: Sequence[int], **fields: Any) -> ShownReply:
    """Kept results at these positions, with falling similarities."""
    results, places = np.empty(len(positions), RESULT), np.arange(len(positions))
    results["position"], results["score"], results["rank"] = positions, 0.9 - 0.001 * places, places + 1
    results["propensity"], results["kept"] = 1.0, True
    return ShownReply(**{"results": results, "key": 7, "stage": None, "not_comparable": None} | fields)


def packed(positions: Sequence[int]) -> bytes:
    """The same as a store has it."""
    return shown(positions).pack()
