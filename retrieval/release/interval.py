"""What every record of a manifest is, and the smallest of them."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class Record(BaseModel):
    """Read-only, and without a field that this version does not know, or a number that JSON has no word for."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Interval(Record):
    """A mean between two limits: of a bootstrap, where nothing else is said, its 2.5th and 97.5th percentiles."""

    mean: float
    lower: float
    upper: float

    @classmethod
    def of_bootstraps(cls, each: NDArray[np.float64]) -> Self:
        """Of a metric of m bootstraps, (m,) (thresholds paper §2.1)."""
        lower, upper = np.percentile(each, [2.5, 97.5])
        return cls(mean=float(each.mean()), lower=float(lower), upper=float(upper))


class Estimate(Interval):
    """A metric; by_document: with whole documents drawn in place of queries, None where queries are the units."""

    by_document: Interval | None = None

    @model_serializer(mode="wrap")
    def _only_what_there_is(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        if self.by_document is None:
            del fields["by_document"]
        return fields
