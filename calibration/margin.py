"""How much may be lost to what is cheaper, checked before anything is read; `calibration/gate.py` judges by it."""

import math
from dataclasses import dataclass

from calibration.risk.rule import CONFIDENCE
from retrieval.errors import InputError

MARGIN = 0.005  # half a point: less than the papers' encoders differ, and what 5,000 queries can show


@dataclass(frozen=True)
class Gate:
    """margin: largest mean loss, confidence: that it is below it. Raises InputError for values that cannot be used."""

    margin: float = MARGIN
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        if not (math.isfinite(self.margin) and 0 < self.margin < 1):
            raise InputError(f"--margin {self.margin}: give a loss of accuracy and NDCG above 0 and below 1")
        if not (math.isfinite(self.confidence) and 0.5 <= self.confidence < 1):
            raise InputError(f"--gate-confidence {self.confidence}: give a probability from 0.5 and below 1")
