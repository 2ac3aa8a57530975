"""Labelled queries without the documents that they are searched in."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.ingestion.dataset.labelled_query import LabelledQuery


@dataclass(frozen=True)
class OtherQueries:
    """Queries of a data set that people have not judged (`taugate.ingestion.dataset.people`).

    Attributes:
        splits: The splits that were read as one.
        unjudged: Texts of other queries by people that have not been judged completely.
        generated: Answerable queries made by a rule or a language model.
        seen_only: Ids of queries judged only on results that the service showed, so that none of them can be a miss.
        unjudged_own: For each query of `unjudged`, the passages that are the query itself, as in
            `LabelledQuery.own_passages`.
    """

    splits: tuple[str, ...]
    unjudged: list[str]
    generated: list[LabelledQuery]
    seen_only: frozenset[str]
    unjudged_own: Sequence[tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class LabelledQueries(ABC):
    """The queries of one split with their qrels. Documents are numbered from 0.

    Attributes:
        name: Name of the data set.
        split: Name of the split.
        answerable: Queries with a relevant document, in the order of the file.
        unanswerable: Queries without a relevant document, in the order of the file.
        sha256: Digests of the files that they were read from, by the names of `DataRecord.sha256`.
        other_queries: Queries outside the split, for calibration with few labels; None if only the split is used.
        relevant_from: The lowest grade that answers; None for 1.
    """

    name: str
    split: str
    answerable: list[LabelledQuery]
    unanswerable: list[LabelledQuery]
    sha256: Mapping[str, str]
    other_queries: OtherQueries | None = None
    relevant_from: int | None = None

    @property
    def grade_notes(self) -> list[str]:
        """A sentence if there are grades above 1, which may say that 1 is no answer."""
        highest = max((grade for query in self.answerable for grade in query.relevant.values()), default=0)
        counted = f"warning: grades 1 to {highest}: every document of grade 1 or more counts as an answer"
        said = f"{counted}; --relevant-from 2 counts those of grade 2 or more"
        return [said] if self.relevant_from is None and highest > 1 else []

    @property
    @abstractmethod
    def passages(self) -> int:
        """N, the number of passages that can be results."""

    @property
    @abstractmethod
    def parents(self) -> NDArray[np.int32] | None:
        """For each passage the first passage of its document, (N,); None if every passage is a document."""

    @property
    def unlabelled_documents(self) -> int:
        """Number of documents that are relevant to no query."""
        documents = self.passages if self.parents is None else len(np.unique(self.parents))
        return documents - len({document for query in self.answerable for document in query.relevant})
