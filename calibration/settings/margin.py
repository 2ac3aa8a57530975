"""How much may be lost to what is cheaper, checked before anything is read; `calibration/gate/gate.py` judges by it."""

import math
from dataclasses import dataclass

from taugate.calibration.settings.rule import CONFIDENCE
from taugate.errors import InputError

# Half a point: less than the papers' encoders differ, and what 600 queries can show, or some 700 documents.
MARGIN = 0.005
# Where no margin is asked for and the labels cannot show the one above, it is what they can show, up to five points.
# Above that a cheaper encoder is another encoder: int8, a projection or an index that is any use loses less.
WIDEST_MARGIN = 0.05


@dataclass(frozen=True)
class Gate:
    """margin: largest mean loss, confidence: that it is below it. Raises InputError for values that cannot be used."""

    margin: float | None = None
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        if self.margin is not None and not (math.isfinite(self.margin) and 0 < self.margin < 1):
            raise InputError(f"--margin {self.margin}: give a loss of accuracy and NDCG above 0 and below 1")
        if not (math.isfinite(self.confidence) and 0.5 <= self.confidence < 1):
            raise InputError(f"--gate-confidence {self.confidence}: give a probability from 0.5 and below 1")


def default_margin(default: float, least: float) -> float:
    """The default, or, where the labels cannot show it, what they can, rounded up to a tenth of a point.

    least: the smallest loss that is excluded where nothing changes. Above WIDEST_MARGIN it stays the default, which
    then nothing passes.
    """
    shown = math.ceil(1000 * least - 1e-9) / 1000
    return max(default, shown) if shown <= WIDEST_MARGIN else default
