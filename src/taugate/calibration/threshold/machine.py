"""The machine that scores unjudged results: a model of relevance, or the similarity itself."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.model import estimate_relevance
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.index.hybrid import words_of
from taugate.retrieval.index.top_k import Searchable, TopK
from taugate.retrieval.policy.relevance import Relevance
from taugate.retrieval.release.labels import Machine
from taugate.retrieval.vectors.queries import QueryVectors
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class ResultScorer:
    """Scores results by a model that has not seen users' queries, so that their judgements can correct it.

    Attributes:
        model: Model fitted on generated queries; None if these are too few, and the share of the largest possible
            score of a result is used.
        max_score: Largest score of a result: 1 for the cosine, 1 + w with a lexical part.
    """

    model: Relevance | None
    max_score: float = 1.0

    @classmethod
    def fit(cls, dataset: Dataset, encoded: EncodedTexts, index: Searchable, k: int, seed: int) -> Self:
        """Fit the model on the generated queries.

        Args:
            dataset: Data set with the generated queries.
            encoded: Vectors of the data set.
            index: Index of the documents.
            k: K, the number of results per query.
            seed: Seed of the division into queries that fit the model and queries that recalibrate it.
        """
        hybrid = words_of(index)
        similarity = cls(None, 1.0 if hybrid is None else 1.0 + hybrid.weight)
        generated = [] if dataset.other_queries is None else dataset.other_queries.generated
        if encoded.generated is None or not generated:
            return similarity
        judged = JudgedQueries.judge(generated, encoded.generated, index, k, dataset.documents.parents)
        roles = QueryRoles.assign(np.arange(len(judged)), SamplingUnits.from_clusters(clusters(generated)), seed)
        if roles is None:
            return similarity
        fitted = estimate_relevance(judged, encoded.generated, roles, encoded.documents, encoded.lengths)
        return cls(fitted.of_vectors) if fitted and fitted.of_vectors else similarity

    @property
    def name(self) -> Machine:
        """Name of the machine in the manifest."""
        return Machine.SIMILARITY if self.model is None else Machine.GENERATED

    def score(self, vectors: QueryVectors, top: TopK) -> Float32:
        """Return the score of each result, (q, K) float32 in 0…1.

        Args:
            vectors: (q, d) float32 vectors of the queries.
            top: (q, K) results of the queries.
        """
        if self.model is not None:
            return self.model.estimate(vectors, top)
        shares: Float32 = np.clip(top.scores / np.float32(self.max_score), 0.0, 1.0)
        return shares
