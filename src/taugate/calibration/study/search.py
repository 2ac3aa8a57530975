"""The search that a study takes its scored queries from: vectors with an index or an engine, or another retriever."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.abstention.choose import LabelledGroups
from taugate.calibration.metrics.measure import PartName, QueryPart
from taugate.calibration.metrics.searched import SearchedQueries
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.query_set.wording import Wording
from taugate.calibration.relevance.model import AppliedRelevance
from taugate.calibration.relevance.probes import LabelledSearch
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.refusing import LabelledParts, RefusalQuestions
from taugate.calibration.threshold.few_labels import FewLabels
from taugate.retrieval.policy.abstention import AnswerRule, AnswerScore
from taugate.retrieval.policy.component_signals import NO_COMPONENTS, Components
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
# A model with the relevance of the answerable queries' results, and that of the unanswerable ones', (u, K) float32.
Modelled = tuple[AppliedRelevance, Float32]


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


# Scores a random document for each of the q queries of a part, (q,) float32.
ScoreRandom = Callable[[QueryPart], Float32]


class VectorSearch(Protocol):
    """What a search can do whose queries and documents have vectors and words."""

    def relevance(
        self, parts: Parts, roles: QueryRoles | None, inherited: Inherited | None, *, refuses: bool
    ) -> Modelled | None:
        """Fit the model of relevance on vectors, or apply an inherited one.

        Args:
            parts: Parts of the answerable queries.
            roles: Roles of the calibration queries, None if there are too few.
            inherited: Parts of an earlier release; None to fit a model.
            refuses: Whether the model also learns from questions that no document answers.

        Returns:
            None if there are too few queries, or none is inherited.
        """
        ...

    def groups(self, calibration: NDArray[np.int64], kept: AnswerRule | None) -> LabelledGroups:
        """Return the labelled queries with all that a score of whole queries may be made of.

        Args:
            calibration: Positions of the answerable queries that may choose or certify.
            kept: Rule of an earlier release that scores them; None to choose one.
        """
        ...

    def few_labels(self) -> FewLabels | None:
        """Estimate from few labels and a machine; None if labels are used alone."""
        ...


class Search(Protocol):
    """A search of labelled queries: it yields them scored, and has further capabilities, None for one that it lacks."""

    @property
    def vectors(self) -> VectorSearch | None:
        """What it can do with vectors; without them, the scores of results are all that is known."""
        return None

    @property
    def random(self) -> ScoreRandom | None:
        """Scores documents that are no results."""
        return None

    @property
    def describe(self) -> Callable[[Parts], DescribedTexts] | None:
        """Describes the texts of queries and documents, given the parts."""
        return None

    @property
    def corpus(self) -> LabelledSearch | None:
        """The queries with their documents."""
        return None

    @property
    def queries(self) -> SearchedQueries:
        """The labelled queries with their results; searched at first use.

        Raises:
            InputError: If no threshold can separate the scores.
        """
        ...

    @property
    def components(self) -> tuple[Components, Components]:
        """Further scores of the answerable and the unanswerable queries' results; none if vectors describe these."""
        return NO_COMPONENTS, NO_COMPONENTS

    def questions(self, parts: LabelledParts) -> RefusalQuestions | None:
        """Return the questions that no document answers, which choose the default ρ; None without any."""
        ...

    @property
    def check_refusals(self) -> Callable[[AnswerScore], None] | None:
        """Raises InputError if the chosen score cannot tell the queries that are to be refused."""
        return None
