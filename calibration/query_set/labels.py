"""What texts and labels say of themselves: repeated queries, and labelled documents far below what was found."""

from collections.abc import Iterable

import numpy as np

from taugate.calibration.metrics.judged import JudgedQueries
from taugate.retrieval.vectors.similarity import Float32

# In standard deviations of S_rand, so that it means the same for an encoder whose similarities are all high or all low.
MARGIN = 3.0


def duplicates(texts: Iterable[str]) -> int:
    """Texts that occurred before, but for case and white space."""
    normal = [" ".join(text.casefold().split()) for text in texts]
    return len(normal) - len(set(normal))


def overtaken(judged: JudgedQueries, random_scores: Float32) -> int:
    """Queries whose best unlabelled document beats the best labelled one by more than MARGIN deviations of S_rand.

    A document that answers a query about as well as the labelled one is near it; one that is this much nearer to the
    query says that the label is wrong or missing, or that the encoder does not know these texts.

    random_scores: S_rand, float32, one similarity or more.
    """
    unlabelled = np.where(judged.grades == 0, judged.top.scores, -np.inf).max(axis=1)
    margin = MARGIN * float(random_scores.std(dtype=np.float64))
    return int((unlabelled - judged.correct.astype(np.float64) > margin).sum())
