"""What may be made cheaper than exact search in float32, if the gate admits it."""

import math
from dataclasses import dataclass, field
from typing import Literal

from taugate.calibration.settings.margin import Gate
from taugate.errors import InputError
from taugate.retrieval.index.kinds import Kind

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
