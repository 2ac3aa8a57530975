"""Reads the words of releases from before scores had a lexical part, which stored them by sentence.

Their idf was in float64, their words were those of rule 1, and k1 and b were Lucene's. Scores by these words stay equal
as long as all three are kept.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.postings import MAX_COUNTED, Statistics, idf, offsets_of, position_type
from taugate.storage.tensors import Arrays

# Types of the arrays by name: (V,) ascending terms, (V,) numbers of documents with them, (N + 1,) first sentence of
# every document, (S + 1,) start of every sentence's row, and by row (P,) positions in the vocabulary and counts.
TYPES: dict[str, type[np.generic]] = {
    "vocabulary": np.uint32,
    "frequencies": np.uint32,
    "documents": np.int64,
    "offsets": np.int64,
    "codes": np.uint32,
    "counts": np.uint8,
}
_K1, _B = 1.2, 0.75


def from_sentences(arrays: Arrays, documents: int) -> LexicalIndex | None:
    """Convert words by sentence, which may be from an untrusted file, into an index of the words.

    Args:
        arrays: Arrays by name.
        documents: Number of documents.

    Returns:
        None if the arrays are not the words of this many documents.
    """
    if {*arrays} != {*TYPES} or any(
        arrays[name].ndim != 1 or arrays[name].dtype != dtype for name, dtype in TYPES.items()
    ):
        return None
    codes, counts, vocabulary = arrays["codes"], arrays["counts"], arrays["vocabulary"]
    sentences, offsets = arrays["documents"], arrays["offsets"]
    if len(sentences) != documents + 1 or not _divides(sentences, len(offsets) - 1):
        return None
    if not _divides(offsets, len(codes)) or len(counts) != len(codes) or (codes >= len(vocabulary)).any():
        return None
    owners = np.repeat(np.repeat(np.arange(documents), np.diff(sentences)), np.diff(offsets))
    pairs, places = np.unique(codes * np.int64(documents) + owners, return_inverse=True)
    frequencies = np.bincount(pairs // documents, minlength=len(vocabulary))
    lengths = np.bincount(owners, counts, documents)
    weights = idf(np.append(frequencies, 0), documents)
    index = LexicalIndex(
        vocabulary,
        weights[:-1],
        offsets_of(frequencies),
        (pairs % documents).astype(position_type(documents)),
        np.minimum(np.bincount(places, counts), MAX_COUNTED).astype(np.uint8),
        lengths.astype(np.uint32),
        Statistics(_K1, _B, float(lengths.mean()) or 1.0, float(weights[-1]), rule=1),
    )
    return index if index.is_valid(documents) else None


def _divides(offsets: NDArray[Any], size: int) -> bool:
    """Return whether offsets divide `size` items into rows: from 0 to `size`, never falling."""
    return len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == size and bool((np.diff(offsets) >= 0).all())
