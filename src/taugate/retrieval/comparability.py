"""Why a reply cannot be compared with the calibration: decided when the reply is made, and carried by all that follows.

Labels, drift detection, explanations and clients read this reason, and guess nothing from what a reply lacks.
"""

from enum import StrEnum

NOT_COMPARABLE = "why drift detection and labels do not compare the reply with the calibration; absent if they do"


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


# With these, the calibration's K results have comparable scores, and only others of them are shown.
SAME_SCORES = frozenset({NotComparable.THRESHOLD, NotComparable.K, NotComparable.GROUPED})
# With these, a reply may be calibrated all the same: by a stratum, by the first stage, or by what the policy covers.
MAY_BE_CALIBRATED = SAME_SCORES - {NotComparable.THRESHOLD} | {NotComparable.FILTERED, NotComparable.FALLBACK}
