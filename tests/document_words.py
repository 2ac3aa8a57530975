"""Words of short texts, and signals of scores by them, for tests of refusals."""

from collections.abc import Sequence

import numpy as np

from taugate.policy.abstention import Signals
from taugate.policy.arrays import mean_and_covariance
from taugate.retrieval.index.lexical import DocumentWords, LexicalIndex


def document_words(texts: Sequence[str]) -> DocumentWords:
    """Index the words of texts."""
    return DocumentWords(LexicalIndex.of(texts), texts.__getitem__)


def all_signals(k: int, vectors: np.ndarray, texts: Sequence[str]) -> Signals:
    """Prepare all signals of k results among documents with these vectors and texts."""
    return Signals(k, mean_and_covariance(vectors), document_words(texts))
