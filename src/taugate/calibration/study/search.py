"""The search that a study takes its scored queries from: vectors with an index or an engine, or another retriever."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.abstention.choose import LabelledGroups
from taugate.calibration.metrics.measure import PartName, QueryPart
from taugate.calibration.metrics.searched import SearchedQueries
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.query_set.wording import Wording
from taugate.calibration.relevance.model import AppliedRelevance
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.refusing import LabelledParts, RefusalQuestions
from taugate.calibration.threshold.few_labels import FewLabels
from taugate.retrieval.policy.abstention import AnswerRule, AnswerScore
from taugate.retrieval.release.evidence import IsotropyRecord
from taugate.retrieval.release.records import QuerySetRecord
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class ScoredPart(QueryPart):
    """A part of the queries, with the similarities of its random documents.

    Attributes:
        random_scores: S_rand, (q,) float32, similarity of each query and its random document; (0,) if the search cannot
            score any document but its results.
    """

    random_scores: Float32


Parts = Mapping[PartName, ScoredPart]


@dataclass(frozen=True)
class DescribedTexts:
    """What the queries and the documents of a data set are like.

    Attributes:
        isotropy: Record of the documents' vectors.
        query_set: Record of the queries.
        wording: Queries that copy their document, and answers that the corpus repeats.
    """

    isotropy: IsotropyRecord
    query_set: QuerySetRecord
    wording: Wording


class StudiedSearch(ABC):
    """Searches for the labelled queries, and does what depends on more than the scores of their results."""

    @property
    @abstractmethod
    def queries(self) -> SearchedQueries:
        """The labelled queries with their results; searched at first use.

        Raises:
            InputError: If no threshold can separate the scores.
        """

    @abstractmethod
    def random_scores(self, part: QueryPart) -> Float32:
        """Score the random documents of a part of the queries; see `ScoredPart`."""

    @abstractmethod
    def relevance(
        self, parts: Parts, roles: QueryRoles | None, inherited: Inherited | None, *, refuses: bool
    ) -> tuple[AppliedRelevance, Float32] | None:
        """Fit the model of relevance, or apply an inherited one.

        Args:
            parts: Parts of the answerable queries.
            roles: Roles of the calibration queries, None if there are too few.
            inherited: Parts of an earlier release; None to fit a model.
            refuses: Whether the model also learns from questions that no document answers.

        Returns:
            The model with the relevance of the answerable queries' results, and that of the unanswerable ones', (u, K)
            float32. None if there are too few queries, or none is inherited.
        """

    @abstractmethod
    def groups(self, calibration: NDArray[np.int64], kept: AnswerRule | None) -> LabelledGroups:
        """Return the labelled queries with all that a score of whole queries may be made of.

        Args:
            calibration: Positions of the answerable queries that may choose or certify.
            kept: Rule of an earlier release that scores them; None to choose one.
        """

    @abstractmethod
    def questions(self, parts: LabelledParts) -> RefusalQuestions | None:
        """Return the questions that no document answers, which choose the default ρ; None without any."""

    def check_refusals(self, score: AnswerScore) -> None:  # noqa: B027 (most searches accept any)
        """Raise InputError if the chosen score cannot tell the queries that are to be refused."""

    @abstractmethod
    def few_labels(self) -> FewLabels | None:
        """Estimate from few labels and a machine; None if labels are used alone."""

    @abstractmethod
    def texts(self, parts: Parts) -> DescribedTexts | None:
        """Describe the query set and the documents; None if neither texts nor vectors are known."""
