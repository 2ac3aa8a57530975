"""Hard negatives: documents that the encoder takes for an answer, without those that may be one.

Learning from the documents that an encoder confuses a query with is worth more than from random ones (Xiong et al.,
"Approximate Nearest Neighbor Negative Contrastive Learning", ICLR 2021). But labels are seldom complete, and what
nobody judged may be an answer: so were about 70 % of the unlabelled passages that a retriever ranked first in MS MARCO
(Qu et al., "RocketQA", NAACL 2021, §1). Two signs tell them apart here. One is the margin to the positive: a document
that is about as near to the query as its answer (de Souza Moreira et al., "NV-Retriever", 2024, TopK-MarginPos). Alone
it takes away the very documents that an encoder gets wrong, and so most of what there is to learn. The other is that
BM25, which knows words and nothing of the encoder, agrees: two systems of different kinds rarely make the same mistake
(Spärck Jones and van Rijsbergen, British Library Report 5266, 1975). A document is set aside where both say so.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.lexical import bm25_scores
from taugate.retrieval.vectors.similarity import Float32

Positions = NDArray[np.int64]
_DEPTH = 50  # documents of each query that are looked at
_SMALLEST = 1e-9  # score of BM25, which is 0 of a document without any word of the query
_MARGIN = 0.05  # of similarity below the answer's; NV-Retriever's, which found it the best of several


@dataclass(frozen=True)
class HardNegatives:
    """Of n queries, the documents that they are confused with.

    Attributes:
        positions: (n, c) int64, most similar first; random documents that do not answer the query where fewer are
            similar, −1 where every document answers it.
        suspects: Of each query, the documents that were set aside, as they may answer it; they should count neither for
            nor against it.
    """

    positions: Positions
    suspects: list[Positions]


@dataclass(frozen=True)
class PairedTexts:
    """Queries and the documents that may be learned from, as the current encoder has them.

    Attributes:
        queries: (n, d) float32 of unit length.
        texts: Of the queries, n of them.
        relevant: Rows of `documents` that answer each query, one at least.
        documents: (N, d) float32 of unit length.
        document_texts: N of them.
    """

    queries: Float32
    texts: Sequence[str]
    relevant: Sequence[Positions]
    documents: Float32
    document_texts: Iterable[str]

    def take(self, rows: Positions) -> Self:
        """Take the queries at `rows`, in that order, with all documents."""
        texts, relevant = ([each[row] for row in rows.tolist()] for each in (self.texts, self.relevant))
        return replace(self, queries=self.queries[rows], texts=texts, relevant=relevant)

    def mine(self, count: int, rng: np.random.Generator) -> HardNegatives:
        """Find hard negatives with the current encoder, and guard against those that may be answers.

        Args:
            count: c, of negatives per query.
            rng: Draws documents where too few are found.
        """
        nearest = FlatIndex.build(self.documents).search(self.queries, min(_DEPTH, len(self.documents)))
        positions = np.empty((len(self.queries), count), dtype=np.int64)
        suspects = []
        for row, lexical in enumerate(bm25_scores(self.document_texts, self.texts)):
            answers = self.relevant[row]
            found, scores = nearest.positions[row], nearest.scores[row]
            other = ~np.isin(found, answers)
            found, scores = found[other], scores[other]
            suspect = scores > (self.documents[answers] @ self.queries[row]).max() - _MARGIN
            suspect &= lexical[found] >= max(lexical[answers].max(), _SMALLEST)
            suspects.append(found[suspect])
            seen = np.concatenate([answers, found])
            positions[row] = _filled(found[~suspect][:count], count, seen, answers, len(self.documents), rng)
        return HardNegatives(positions, suspects)


def _filled(
    found: Positions, count: int, excluded: Positions, answers: Positions, documents: int, rng: np.random.Generator
) -> Positions:
    """Return negatives of a query, with random documents behind them where they are too few."""
    if len(found) == count:
        return found
    others = np.setdiff1d(np.arange(documents), excluded)
    if not len(others):  # a small corpus, all of which was found
        others = np.setdiff1d(np.arange(documents), answers)
    if not len(others):
        return np.full(count, -1)
    return np.concatenate([found, rng.choice(others, count - len(found))])
