"""Domain familiarity: how little an encoder's vector of a query changes when the query is paraphrased."""

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.vectors.similarity import Float32

QUERIES, PARAPHRASES = 10, 3  # m and n of the query embeddings paper, §6.2


def text_familiarity(texts: Float32, paraphrases: Float32) -> NDArray[np.float64]:
    """Return TF_n of each text, (m,) float64: its mean cosine similarity with its paraphrases.

    Query embeddings paper, §6.2, eq. 5.

    Args:
        texts: (m, d) float32.
        paraphrases: (m, n, d) float32, n of each text; no vector is zero.
    """
    left, right = texts.astype(np.float64), paraphrases.astype(np.float64)
    products = np.einsum("md,mnd->mn", left, right)
    lengths = np.linalg.norm(left, axis=1)[:, None] * np.linalg.norm(right, axis=2)
    means: NDArray[np.float64] = (products / lengths).mean(axis=1)
    return means


def domain_familiarity(texts: Float32, paraphrases: Float32) -> float:
    """Return DF_m, the mean of TF_n over m texts of a domain (query embeddings paper, §6.2, eq. 6).

    Args:
        texts: (m, d) float32.
        paraphrases: (m, n, d) float32.
    """
    return float(text_familiarity(texts, paraphrases).mean())
