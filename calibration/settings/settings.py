"""What a calibration is asked for, checked before anything is read."""

import math
from dataclasses import dataclass, field

from taugate.calibration.settings.abstention_rule import AbstentionRule
from taugate.calibration.settings.cheaper import Cheaper
from taugate.calibration.settings.rule import Rule
from taugate.errors import InputError
from taugate.retrieval.vectors.overlap import DEFAULT_OVERLAP_PERCENTILE


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
