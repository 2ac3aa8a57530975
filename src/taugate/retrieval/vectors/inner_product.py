"""Inner products as cosines: with one more coordinate, a search by cosine ranks by the inner product.

A document x becomes (x / M, √(1 − |x|² / M²)), and a query q becomes (q / |q|, 0). Both have length 1, and their cosine
is q·x / (|q| M), so documents are in the order of q·x (Bachrach et al., RecSys 2014, theorem 1; Neyshabur and Srebro,
ICML 2015, §4.2). M is at least the length of any document. A longer one counts as its direction with length M.
"""

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.vectors.similarity import Float32

# Of 1,400 documents of four data sets, the longest vector by all-MiniLM-L6-v2 without its normalization has .81, .97 or
# 1.27 of the length of the longest passage among the probes of the export (pooling mean, cls or max). A larger M makes
# cosines small beside the share of common words, whose weights are tried for cosines up to 1.
_HEADROOM = 1.3


def extended(vectors: Float32, *, documents: bool | NDArray[np.bool_], max_norm: float) -> Float32:
    """Return unit vectors whose cosines are in the order of inner products, (n, d + 1) float32.

    Args:
        vectors: (n, d) float32 of any length.
        documents: Whether each row, or every row, is of a document; the others are of queries. A query that is zero
            stays zero.
        max_norm: M.
    """
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1)
    shorter = np.where(documents & (lengths < max_norm), max_norm, np.where(lengths == 0, 1.0, lengths))
    last = np.where(documents, np.sqrt(np.maximum(0.0, 1 - (lengths / shorter) ** 2)), 0.0)
    return np.column_stack([wide / shorter[:, None], last]).astype(np.float32)


def max_norm_above(longest: float) -> float:
    """Return M for vectors like those of some documents, in two digits, so that it does not depend on rounding.

    Args:
        longest: The largest length of their vectors.
    """
    return float(f"{_HEADROOM * longest:.1e}")


def count_longer(vectors: Float32) -> int:
    """Return how many documents are longer than M, of (n, d + 1) vectors made by `extended`."""
    return int(np.count_nonzero(vectors[:, -1] == 0))
