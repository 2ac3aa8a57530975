"""The settings of an update. `taugate update` has an option for each field."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.settings.options import Advice, Options
from taugate.calibration.settings.rules import MAX_LOSS
from taugate.calibration.settings.settings import default_margin


@dataclass(frozen=True)
class UpdateSettings(Options):
    """Settings of the check that the threshold still holds. The constructor raises InputError for an invalid value."""

    split: str | None = Field(
        default=None, description="labels: name of a file in qrels/, without .tsv (default: as the current release)"
    )
    margin: Annotated[
        Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None,
        Advice("give a loss of accuracy above 0 and below 1"),
    ] = Field(
        default=None,
        description=f"largest loss of accuracy allowed (default: {MAX_LOSS:g}, or the smallest the labels can show)",
    )
    embeddings: str | None = Field(
        default=None,
        description="folder or URL of the vectors that `taugate encode` wrote for the newer corpus; for a release "
        "whose vectors are in an engine",
    )

    def margin_for(self, detectable: float) -> float:
        """Return the margin, or the default for labels that can exclude a loss of `detectable` and no smaller one."""
        return default_margin(MAX_LOSS, detectable) if self.margin is None else self.margin
