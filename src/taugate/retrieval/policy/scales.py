"""What scores are: similarities (higher is better, and 0 means unrelated), distances (lower is better) or log-odds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from taugate.errors import InputError
from taugate.retrieval.policy.policy import POLICIES

ScoreScale = Literal["similarity", "distance", "logit"]
RerankerScale = Literal["similarity", "logit"]


@dataclass(frozen=True)
class Scale:
    """A scale of scores.

    Attributes:
        plural: The scores.
        note: What is known of a score, after its name; may be empty.
        zero: Whether a score of 0 means unrelated, so that a share of the best score means something.
        sign: Factor with which scores are compared, so that higher is better.
    """

    plural: str
    note: str = ""
    zero: bool = False
    sign: float = 1.0

    def check(self, policy: str, given: str) -> None:
        """Raise InputError if a policy means nothing on this scale, which `given` names."""
        if policy in POLICIES and POLICIES[policy].needs_zero and not self.zero:
            raise InputError(
                f"--policy {policy}: a share of the best score means nothing for {given}; give --policy gap, the "
                "difference from the best score"
            )


SCALES: Mapping[ScoreScale, Scale] = {
    "similarity": Scale("similarities", zero=True),
    "distance": Scale("distances, compared as negative numbers", " (the negative distance)", sign=-1.0),
    "logit": Scale("log-odds", " (log-odds)"),
}
