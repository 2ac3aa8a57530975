"""The queries that curves are drawn on: those that had the least say in the rule they judge."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.job.study import Findings
from taugate.calibration.metrics.scored import Scored


@dataclass(frozen=True)
class Shown:
    """members: positions of the answerable queries; queries: they themselves; words: which they are, for people."""

    members: NDArray[np.int64]
    queries: Scored
    words: str


def shown(found: Findings) -> Shown:
    """The held-out queries; without any, those of the calibration queries that the model was not fitted on."""
    if "heldout" in found.parts:
        members = found.parts["heldout"].members
        words = f"{len(members):,} held-out answerable queries, which had no say in the threshold"
    elif found.roles is not None:
        members = found.roles.rest
        words = (
            f"{len(members):,} calibration queries that the relevance model was not fitted on (none are held out, and "
            "the threshold was chosen on these, so it looks a little better here than it is)"
        )
    else:
        members = found.parts["calibration"].members
        words = (
            f"{len(members):,} calibration queries (none are held out, and the threshold was chosen on these, so it "
            "looks a little better here than it is)"
        )
    return Shown(members, found.scored.take(members), words)
