"""What a calibration is asked for, checked before anything is read."""

import math
from dataclasses import dataclass, field
from typing import Literal

from taugate.calibration.settings.rules import CONFIDENCE, AbstentionRule, Rule
from taugate.drift.overlap import DEFAULT_OVERLAP_PERCENTILE
from taugate.errors import InputError
from taugate.retrieval.index.kinds import Kind

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


RETENTION = 0.9  # the query embeddings paper's (§5)
AskedProjection = Literal["none", "query-pca", "auto"]
AskedPrecision = Literal["float32", "int8", "auto"]
AskedIndex = Kind | Literal["auto"]
_BASELINE = {"precision": "float32", "projection": "none", "index": "flat"}


@dataclass(frozen=True)
class Cheaper:
    """What is asked for.

    projection: of embeddings before the search, retention: the share of dimensions that query-pca keeps; precision: of
    the encoder of queries; index: of documents; gate: what it takes to be admitted.

    Raises InputError for a retention that cannot be used or that nothing would use.
    """

    projection: AskedProjection = "none"
    retention: float | None = None
    precision: AskedPrecision = "float32"
    index: AskedIndex = "flat"
    gate: Gate = field(default_factory=Gate)

    def __post_init__(self) -> None:
        if self.retention is None:
            return
        if not (math.isfinite(self.retention) and 0 < self.retention <= 1):
            raise InputError(f"--retention {self.retention}: give a share of the dimensions above 0 and at most 1")
        if self.projection != "query-pca":
            raise InputError(f"--retention {self.retention}: is of --projection query-pca; give both, or neither")

    @property
    def asked(self) -> dict[str, str]:
        """What is asked for in place of the baseline, by option."""
        chosen = {name: getattr(self, name) for name in _BASELINE}
        return {name: value for name, value in chosen.items() if value != _BASELINE[name]}


@dataclass(frozen=True)
class CalibrationSettings:
    """Settings of `taugate calibrate`; m, l and K are the papers' (thresholds paper, after Table 1).

    k: documents retrieved a query; bootstraps, sample_size: m rows of l queries; holdout: share of the answerable
    queries kept out of calibration, in [0, 1); overlap_percentile: of S_topK that gives θ, in [0, 100]; rule: how the
    threshold is chosen; abstention: how queries are refused as a whole, None where none is; cheaper: what may be made
    so.

    Raises InputError for a value that cannot be used.
    """

    split: str = "test"
    k: int = 5
    bootstraps: int = 500
    sample_size: int = 100
    seed: int = 0
    holdout: float = 0.3
    overlap_percentile: float = DEFAULT_OVERLAP_PERCENTILE
    rule: Rule = field(default_factory=Rule.asked)
    abstention: AbstentionRule | None = None
    cheaper: Cheaper = field(default_factory=Cheaper)

    def __post_init__(self) -> None:
        for name in ("k", "bootstraps", "sample_size"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name)}: give a whole number of 1 or more")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"--seed {self.seed}: give a whole number from 0 to {2**63 - 1}")
        if not (math.isfinite(self.holdout) and 0 <= self.holdout < 1):
            raise InputError(f"--holdout {self.holdout}: give a share of the queries, 0 or more and below 1")
        if not (math.isfinite(self.overlap_percentile) and 0 <= self.overlap_percentile <= 100):
            raise InputError(f"--overlap-percentile {self.overlap_percentile}: give a percentile from 0 to 100")
        if not self.split or "/" in self.split or self.split in {".", ".."}:
            raise InputError(f"--split {self.split!r}: give the name of a file in qrels/, without .tsv")
