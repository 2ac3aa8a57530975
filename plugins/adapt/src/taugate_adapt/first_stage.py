"""The first stage of a search: the base encoder and shared words. A reranker learns to reorder its results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.acceptance.baseline import LexicalPart, SearchTrial
from taugate.calibration.acceptance.better_lists import GRID
from taugate.calibration.metrics.inputs import relevant_passages
from taugate.calibration.settings import LexicalChoice
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.acceptance import DEPTH
from taugate.policy.arrays import Float32, QueryVectors
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.index.words import hybrid_vectors
from taugate_adapt.pairs import AdaptationQueries, PairedTexts
from taugate_adapt.parts import TRAIN
from taugate_adapt.recipes import EncodedPairs
from taugate_adapt.training.cross_encoding import ScoredPairs

_NEGATIVES = 16  # for each query, of which each epoch draws one; the paper's triplets have ten
_STREAM = 9  # random stream of the seed for negatives of queries with few
EncodeQueries = Callable[[Sequence[LabelledQuery]], Float32]


@dataclass(frozen=True)
class FirstStage:
    """Searches the complete corpus.

    Attributes:
        trial: The search, with the lexical share that is best for the queries to learn from and to choose by.
    """

    pairs: EncodedPairs
    encode: EncodeQueries
    trial: SearchTrial

    @classmethod
    def choose(cls, pairs: EncodedPairs, encode: EncodeQueries, lexical: LexicalChoice) -> "FirstStage":
        """Choose the weight of the lexical share by NDCG@10 of the queries to learn from and to choose by."""
        queries = [*pairs.queries.train, *pairs.queries.validation]
        vectors = np.concatenate([pairs.train, pairs.validation])
        best = SearchTrial.build(queries, vectors, pairs.documents, DEPTH, pairs.parents)
        if lexical == "off":
            return cls(pairs, encode, best)
        worded = replace(best, vectors=hybrid_vectors(vectors, (query.text for query in queries)))
        words = LexicalIndex.of(document.encoded_text for document in pairs.corpus)
        weights = GRID if lexical == "auto" else (lexical,)
        trials = [replace(worded, lexical=LexicalPart(words, weight)) for weight in weights]
        if lexical == "auto":
            trials.append(best)
        return cls(pairs, encode, max(trials, key=lambda trial: float(trial.exact_outcomes.ndcg.mean())))

    @property
    def lexical_weight(self) -> float:
        """Weight of the lexical share; 0 if the score is the cosine."""
        return 0.0 if self.trial.lexical is None else self.trial.lexical.weight

    def search(self, queries: Sequence[LabelledQuery], candidates: int) -> TopK:
        """Return the (n, N) candidates of n queries."""
        return self.trial.exact.search(self._compared(queries, self.encode(queries)), candidates)

    def training_pairs(self, seed: int) -> ScoredPairs:
        """Mine negatives for the queries to learn from, among the documents to learn from, and score all of them."""
        queries = [*self.pairs.queries.train, *self.pairs.queries.unanswerable[TRAIN]]
        paired, allowed = self._paired_texts(queries), self.pairs.queries.parts.passages(TRAIN)
        mined = paired.mine(_NEGATIVES, np.random.default_rng([seed, _STREAM])).positions
        for row, query in enumerate(queries):
            if not query.relevant and query.judged:  # the document was judged, and does not answer it
                mined[row, 0] = np.searchsorted(allowed, query.judged[0])
        vectors = self._compared(queries, paired.queries)

        def score(rows: NDArray[np.int64], documents: NDArray[np.int64]) -> Float32:
            return self.trial.exact.score(vectors[rows], allowed[documents])

        relevant_scores = [
            score(np.array([row]), documents[None])[0] if len(documents) else np.zeros(0, np.float32)
            for row, documents in enumerate(paired.relevant)
        ]
        scores = score(np.arange(len(queries)), np.maximum(mined, 0))
        return ScoredPairs(paired.texts, [*paired.document_texts], paired.relevant, relevant_scores, mined, scores)

    def _paired_texts(self, queries: Sequence[LabelledQuery]) -> PairedTexts:
        paired, others = self.pairs.paired_texts(None), queries[len(self.pairs.train) :]
        return replace(
            paired,
            queries=np.concatenate([paired.queries, self.encode(others)]) if others else paired.queries,
            texts=[query.text for query in queries],
            relevant=[*paired.relevant, *(np.zeros(0, dtype=np.int64) for _ in others)],
        )

    def _compared(self, queries: Sequence[LabelledQuery], vectors: Float32) -> QueryVectors:
        if self.trial.lexical is None:
            return vectors
        return hybrid_vectors(vectors, (query.text for query in queries))


def random_pairs(corpus: DocumentStore, queries: AdaptationQueries, seed: int) -> ScoredPairs:
    """Return pairs as of `training_pairs`, with random negatives and scores: they take as long to learn from."""
    rng, allowed = np.random.default_rng([seed, _STREAM]), queries.parts.passages(TRAIN)
    asked = [*queries.train, *queries.unanswerable[TRAIN]]
    relevant = [np.searchsorted(allowed, positions) for positions in relevant_passages(queries.train, corpus.parents)]
    relevant += [np.zeros(0, dtype=np.int64)] * len(queries.unanswerable[TRAIN])
    negatives = rng.integers(len(allowed), size=(len(asked), _NEGATIVES))
    scores = rng.random(negatives.shape, dtype=np.float32)
    relevant_scores = [np.ones(len(documents), dtype=np.float32) for documents in relevant]
    texts = [corpus[position].encoded_text for position in allowed.tolist()]
    return ScoredPairs([query.text for query in asked], texts, relevant, relevant_scores, negatives, scores)
