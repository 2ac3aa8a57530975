"""A data set encoded and searched once: every split of its queries after that works on arrays."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.encoding import encoded_set
from taugate.calibration.encoding.corpus import EncodedDataset
from taugate.calibration.metrics.inputs import clusters, judge_queries
from taugate.calibration.relevance import estimate_relevance
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.ranking import JudgedQueries, ScoredQueries
from taugate.evidence.relevance.fitting import EstimatedRelevance, fit_relevance, map_probabilities
from taugate.policy.arrays import Float32, Float64, dense_of
from taugate.policy.relevance import Background, Relevance, features
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import TopK

# The benchmark prepares what does not depend on the split once, in other blocks than `estimate`, which moves last bits.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class EncodedSplit:
    """A split of a data set as vectors, with the length of each document in bytes."""

    name: str
    split: str
    queries: list[LabelledQuery]
    vectors: EncodedDataset
    lengths: NDArray[np.int64]

    @classmethod
    def read(cls, data: Path, name: str, split: str, encoder: str) -> Self:
        """Encode through the project's own cache; progress goes to stdout."""
        with tempfile.TemporaryDirectory() as spool:
            dataset, vectors = encoded_set(data / name, split, Path(spool), encoder)
            return cls(name, split, dataset.answerable, vectors, vectors.lengths)


@dataclass(frozen=True)
class SearchedSplit:
    """The answerable queries, n of them, with what a split needs to fit, decide and measure.

    Attributes:
        judged: Positions in it are rows of `documents`, (r, d), which holds those that any query retrieves and no
            others.
        background: Of the whole corpus, less what depends on the queries that fit.
        query_background: (n,) each.
    """

    name: str
    k: int
    queries: list[LabelledQuery]
    units: SamplingUnits
    vectors: Float32
    judged: JudgedQueries
    documents: Float32
    background: Background
    query_background: tuple[Float64, Float64]

    @classmethod
    def of(cls, encoded: EncodedSplit, k: int) -> Self:
        """Search at K, and check on one partition that `estimate` below is the product's own."""
        vectors, corpus = dense_of(encoded.vectors.answerable), encoded.vectors.documents
        index = FlatIndex.build(corpus)
        judged = judge_queries(encoded.queries, vectors, index, k)
        background = Background.of(corpus, vectors, encoded.lengths)
        retrieved, rows = np.unique(judged.top.positions, return_inverse=True)
        local = replace(judged, top=TopK(judged.top.scores, rows.reshape(judged.top.positions.shape)))
        few = replace(background, documents=background.documents[retrieved])
        searched = cls(
            encoded.name,
            k,
            encoded.queries,
            SamplingUnits.from_clusters(clusters(encoded.queries)).capped(None),
            vectors,
            local,
            corpus[retrieved],
            few,
            background.of_queries(vectors),
        )
        parts = QueryRoles.draw(np.arange(len(vectors)), searched.units, 0)
        own, product = (searched.estimate(parts), estimate_relevance(judged, vectors, parts, corpus, encoded.lengths))
        if own is None or product is None or np.abs(own.answerable - product.answerable).max() > _ROUNDING:
            raise AssertionError(f"{encoded.name}: the benchmark does not measure the product")
        return searched

    def values(self, fitting: NDArray[np.int64]) -> tuple[Float64, Background]:
        """Features of every result, (n, K, F), with the background that the queries at `fitting` give.

        How a document scores against queries is how it scores, as if it were a query, against a corpus of them.
        """
        some = self.vectors[fitting]
        asked = Background.of(some, some[:1], np.ones(len(some), np.int64)).of_queries(self.documents)
        documents = self.background.documents.copy()
        documents[:, 2:4] = np.column_stack(asked)
        background = replace(self.background, documents=documents)
        top = self.judged.top
        return features(top.scores, self.query_background, documents[top.positions], self.k), background

    def estimate(self, parts: QueryRoles) -> EstimatedRelevance | None:
        """`taugate.calibration.relevance.estimate` with these parts of the queries."""
        values, background = self.values(parts.fit)
        relevant = self.judged.grades >= 1
        fitted = fit_relevance(values[parts.fit], relevant[parts.fit], parts.clusters)
        if fitted is None:
            return None
        model = map_probabilities(fitted.model, values[parts.not_fitting], relevant[parts.not_fitting])
        answerable = model.probability(values).astype(np.float32)
        relevance = Relevance(model, background, self.k)
        return EstimatedRelevance(relevance, answerable, None, fitted)

    def scored(self, estimated: EstimatedRelevance | None = None) -> ScoredQueries:
        """All queries with the model's relevance, if there is one; no unanswerable ones, as no rule here looks at them."""
        nothing = TopK(np.empty((0, self.k), np.float32), np.empty((0, self.k), np.int64))
        relevance = (None, None) if estimated is None else (estimated.answerable, estimated.answerable[:0])
        return ScoredQueries(self.judged, nothing, *relevance)
