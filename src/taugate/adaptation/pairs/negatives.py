"""Hard negatives: documents that the encoder ranks like an answer, without those that may be an answer.

Hard negatives teach an encoder more than random documents (Xiong et al., "Approximate Nearest Neighbor Negative
Contrastive Learning", ICLR 2021). But labels are seldom complete, and an unjudged document may be an answer: about 70 %
of the unlabelled passages that a retriever ranked first in MS MARCO were (Qu et al., "RocketQA", NAACL 2021, §1). Two
signs identify such documents. One is the margin to the positive: the document is about as near to the query as its
answer (de Souza Moreira et al., "NV-Retriever", 2024, TopK-MarginPos). Alone it removes the documents that the encoder
gets wrong, and so most of the training signal. The second sign is that BM25, which compares words, agrees: two systems
of different kinds rarely make the same mistake (Spärck Jones and van Rijsbergen, British Library Report 5266, 1975). A
document is excluded if both signs agree.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.words import query_terms
from taugate.retrieval.vectors.similarity import Float32

Positions = NDArray[np.int64]
_DEPTH = 50  # documents considered for each query
_SMALLEST = 1e-9  # below the share of BM25 of any document that has a word of the query
_MARGIN = 0.05  # similarity below the answer's; the best of several in the NV-Retriever paper


@dataclass(frozen=True)
class HardNegatives:
    """Hard negatives of n queries.

    Attributes:
        positions: (n, c) int64, most similar first, filled with random documents that do not answer the query; −1 if
            every document answers it.
        suspects: Documents of each query that were excluded because they may answer it; they should be ignored.
    """

    positions: Positions
    suspects: list[Positions]


@dataclass(frozen=True)
class PairedTexts:
    """Queries and documents to learn from, encoded by the current encoder.

    Attributes:
        queries: (n, d) float32 of unit length.
        texts: n texts of the queries.
        relevant: Rows of `documents` that answer each query, none of an unanswerable one.
        documents: (N, d) float32 of unit length.
        document_texts: N texts of the documents.
    """

    queries: Float32
    texts: Sequence[str]
    relevant: Sequence[Positions]
    documents: Float32
    document_texts: Iterable[str]

    def take(self, rows: Positions) -> Self:
        """Take the queries at `rows`, in that order, with all documents."""
        texts, relevant = [self.texts[row] for row in rows.tolist()], [self.relevant[row] for row in rows.tolist()]
        return replace(self, queries=self.queries[rows], texts=texts, relevant=relevant)

    def mine(self, count: int, rng: np.random.Generator) -> HardNegatives:
        """Find hard negatives with the current encoder, and exclude those that may be answers.

        Args:
            count: c, the number of negatives per query.
            rng: Generator that draws documents if too few are found.
        """
        nearest = FlatIndex.build(self.documents).search(self.queries, min(_DEPTH, len(self.documents)))
        positions = np.empty((len(self.queries), count), dtype=np.int64)
        suspects = []
        lexical = LexicalIndex.of(self.document_texts)
        for row, text in enumerate(self.texts):
            answers, words = self.relevant[row], query_terms(text)
            retrieved, scores = nearest.positions[row], nearest.scores[row]
            other = ~np.isin(retrieved, answers)
            retrieved, scores = retrieved[other], scores[other]
            suspect = np.zeros(len(retrieved), dtype=np.bool_)  # no document answers an unanswerable query
            if len(answers):
                suspect = scores > (self.documents[answers] @ self.queries[row]).max() - _MARGIN
                suspect &= lexical.shares(words, retrieved) >= max(lexical.shares(words, answers).max(), _SMALLEST)
            suspects.append(retrieved[suspect])
            seen = np.concatenate([answers, retrieved])
            positions[row] = _filled(retrieved[~suspect][:count], count, seen, answers, len(self.documents), rng)
        return HardNegatives(positions, suspects)


def _filled(
    retrieved: Positions, count: int, excluded: Positions, answers: Positions, documents: int, rng: np.random.Generator
) -> Positions:
    """Return negatives of a query, followed by random documents if they are too few."""
    if len(retrieved) == count:
        return retrieved
    candidates = np.setdiff1d(np.arange(documents), excluded)
    if not len(candidates):  # all of a small corpus was retrieved
        candidates = np.setdiff1d(np.arange(documents), answers)
    if not len(candidates):
        return np.full(count, -1)
    return np.concatenate([retrieved, rng.choice(candidates, count - len(retrieved))])
