"""The settings of an adaptation, checked before anything is read. `taugate adapt` has an option for each field."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from taugate.calibration.settings.options import Advice, Options

Recipe = Literal["auto", "whitening", "adapter"]
TRAIN = "train"  # the split whose queries are learned from, where a data set has one
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smh])")


def _duration(text: str) -> str:
    if _DURATION.fullmatch(text) is None:
        raise ValueError("no duration")
    return text


@dataclass(frozen=True)
class AdaptationSettings(Options):
    """How an encoder is adapted. Constructors raise InputError for a value that cannot be used."""

    recipe: Recipe = Field(default="auto", description="what is learned; auto: each recipe that beats the one before")
    budget: Annotated[
        Annotated[str, AfterValidator(_duration)], Advice("give a whole number and a unit, such as 90s, 10m or 1h")
    ] = Field(default="10m", description="time that the adaptation may take; it decides how many steps are made")
    split: str | None = Field(
        default=None,
        description="file in qrels/, without .tsv, to learn from (default: train where there is one, else crops)",
    )
    eval_split: str | None = Field(
        default=None,
        description="file in qrels/ that decides on admission (default: test where there is one, else human, else "
        "generated)",
    )
    seed: Annotated[int, Advice("give a whole number of 0 or more")] = Field(
        default=0, ge=0, description="seed of every random choice"
    )
    paraphrases: Literal["rules", "local", "endpoint"] = Field(
        default="rules",
        description="who paraphrases ten queries, to measure how well the encoder knows the domain: rules, or a "
        "language model on this machine or behind --endpoint",
    )

    @property
    def seconds(self) -> int:
        """Return the budget in seconds."""
        amount, unit = self.budget[:-1], self.budget[-1]
        return int(amount) * _SECONDS[unit]
