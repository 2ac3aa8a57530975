"""What every record of a manifest is, and the smallest of them."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Read-only, and without a field that this version does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Interval(Record):
    """A mean between two limits: of a bootstrap, where nothing else is said, its 2.5th and 97.5th percentiles."""

    mean: float
    lower: float
    upper: float
