"""How many unanswerable queries may be answered, and at what price; checked before anything is read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from taugate.calibration.settings.rule import CONFIDENCE
from taugate.errors import InputError
from taugate.ingestion.dataset.dataset import Dataset

# γ where no --max-empty is given: the share of answerable queries refused at which scores are compared, and what is
# refused at most where the limit on answers cannot be certified. One question in ten sent away is what a search that
# people rely on can cost at most; docs/benchmarks/abstention.md draws the other error for values from .01 to .5.
MAX_EMPTY = 0.10


@dataclass(frozen=True)
class AbstentionRule:
    """Limits on both errors of refusing queries as a whole.

    max_answered: β, largest share of unanswerable queries that may be answered; max_empty: γ, largest share of
    answerable queries that may be refused, None where nothing was asked of it; confidence: that both hold together.

    Raises InputError for a value that cannot be used.
    """

    max_answered: float
    max_empty: float | None = None
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        if not (math.isfinite(self.max_answered) and 0 < self.max_answered < 1):
            raise InputError(
                f"--max-answered {self.max_answered}: give a share of the unanswerable queries above 0 and below 1"
            )
        if self.max_empty is not None and not (math.isfinite(self.max_empty) and 0 < self.max_empty < 1):
            raise InputError(
                f"--max-empty {self.max_empty}: give a share of the answerable queries above 0 and below 1"
            )
        if not (math.isfinite(self.confidence) and 0.5 <= self.confidence < 1):
            raise InputError(
                f"--confidence {self.confidence}: give a probability from 0.5 and below 1; nothing is certain"
            )

    @property
    def most_refused(self) -> float:
        """γ, asked for or not."""
        return MAX_EMPTY if self.max_empty is None else self.max_empty

    @property
    def each(self) -> float:
        """Confidence of each of the two limits by itself: half of the error is each one's (Bonferroni)."""
        return 1 - (1 - self.confidence) / 2

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> tuple[Self | None, dict[str, Any]]:
        """The rule that the options ask for, with those that are left for the cut.

        Without max_answered there is no rule, and max_empty limits what the cut leaves empty. With it max_empty speaks
        of refusals, and says nothing of the cut, which may be any; nor does a confidence alone ask for a certified one.
        """
        if options.get("max_answered") is None:
            return None, {name: value for name, value in options.items() if name != "max_answered"}
        own = {name: options[name] for name in ("max_answered", "max_empty", "confidence") if name in options}
        certified = (
            bool({"guarantee", "max_loss", "strata"} & {*options})
            or options.get("method") not in {None, "bootstrap"}
            or options.get("policy") not in {None, "similarity"}
        )
        left = {"max_answered", "max_empty"} | (set() if certified else {"confidence"})
        return cls(**own), {name: value for name, value in options.items() if name not in left}

    def check(self, dataset: Dataset) -> None:
        """Raise InputError where there is nothing to certify it on."""
        if not dataset.unanswerable:
            raise InputError(
                f"--max-answered {self.max_answered:g}: the split {dataset.split} has no unanswerable query, and what "
                "is never asked cannot be limited; label some, each with a score of 0 for a document that does not "
                "answer it, or leave the option out"
            )
