"""Why a reply cannot be compared with the calibration: decided when the reply is made, and carried by all that follows.

Labels, drift detection, explanations and clients read this reason, and guess nothing from what a reply lacks.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, WithJsonSchema


class NotComparable(StrEnum):
    """A reason; of several that apply, the first of this list is given. Names are those of replies and of the log."""

    UNREADABLE = "unreadable"  # the encoder does not know most of the text
    TRUNCATED = "truncated"  # the encoder reads only the beginning of the text
    FILTERED = "filtered"  # a filter, of the request or of the API key, selects the documents
    VECTOR = "vector"  # the query is a vector of the client, and the calibration encoded its queries
    PRECISION = "precision"  # the encoder in use has another precision than the calibrated one
    FALLBACK = "fallback"  # the first stage's results, because the second stage did not answer
    FEWER_RESULTS = "fewer_than_k"  # another retriever gave fewer results than the calibration's K
    THRESHOLD = "threshold"  # the request has its own threshold
    K = "k"  # the request considers more or fewer results than the calibration's K
    GROUPED = "grouped"  # results are grouped by document, which reach further down the list

    @property
    def changes_scores(self) -> bool:
        """True if even the scores of the calibration's K results are others; else only other ones of them are shown."""
        return self not in _OTHER_SELECTION

    @property
    def uncovers(self) -> bool:
        """True if no calibration covers the reply; for others a stratum, the first stage or the policy may."""
        return self not in _CALIBRATED_APART


_OTHER_SELECTION = {NotComparable.THRESHOLD, NotComparable.K, NotComparable.GROUPED}
_CALIBRATED_APART = {NotComparable.FILTERED, NotComparable.FALLBACK, NotComparable.K, NotComparable.GROUPED}

_SCHEMA = {"anyOf": [{"enum": [reason.value for reason in NotComparable], "type": "string"}, {"type": "null"}]}
_ABOUT = "why drift detection and labels do not compare the reply with the calibration; absent if they do"
# A field of a reply, whose schema lists the reasons in place, as those of other fields do.
NotComparableField = Annotated[NotComparable | None, Field(description=_ABOUT), WithJsonSchema(_SCHEMA)]
