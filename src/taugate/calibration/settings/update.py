"""The settings of an update, checked before anything is read. `taugate update` has an option for each field."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.settings.options import Advice, Options
from taugate.calibration.settings.rules import MAX_LOSS
from taugate.calibration.settings.settings import default_margin


@dataclass(frozen=True)
class UpdateSettings(Options):
    """How the threshold is checked on the updated corpus. Constructors raise InputError for a value that is refused."""

    split: str | None = Field(
        default=None, description="file in qrels/, without .tsv (default: the split of the current release)"
    )
    margin: Annotated[
        Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None,
        Advice("give a loss of accuracy above 0 and below 1"),
    ] = Field(
        default=None,
        description=f"largest loss of accuracy at τ (default: {MAX_LOSS:g}, or the smallest that the labels can show)",
    )
    embeddings: str | None = Field(
        default=None,
        description="folder, or URL in object storage, where `taugate encode` wrote the vectors of the newer corpus; "
        "of a release whose vectors are in an engine",
    )

    def margin_for(self, least: float) -> float:
        """Return the margin: the one that was given, or the default.

        Args:
            least: The smallest loss that the labels can exclude where no answer changes.
        """
        return default_margin(MAX_LOSS, least) if self.margin is None else self.margin
