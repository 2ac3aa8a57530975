"""Labelled queries: a query of a split with its judgements, with or without the documents that are searched.

ArguAna, Quora, CQADupStack and SciDocs search for documents related to a document of the corpus, under the same id,
which BEIR leaves out of the results. Ids that merely count are equal by chance, and the document may be the answer: so
the texts have to agree as well.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.data.judgements import NOWHERE, JudgedId, Judgement
from taugate.data.queries import DatasetQuery, Origin
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.words import words

# Copies of long texts differ by a correction or two; an equal share of a short question may be found by chance.
_MIN_WORDS_TO_DIFFER = 20
_MIN_SHARE = 0.9


def is_same_text(query: str, passages: Sequence[Document]) -> bool:
    """Return whether a query is the title, the text, or title and text of a document, but for case and punctuation."""
    # If the query has 20 words or more, nine in ten have to agree.
    query_words = words(query, rule=1)
    title = words(passages[0].title or "", rule=1)
    text = [word for passage in passages for word in words(passage.text, rule=1)]
    if not query_words:
        return False
    if query_words in (title, text, title + text):
        return True
    common = (Counter(query_words) & Counter(title + text)).total()
    return len(query_words) >= _MIN_WORDS_TO_DIFFER and common >= _MIN_SHARE * len(query_words)


def left_out_notes(empty: int, own_documents: int) -> list[str]:
    """Return messages for the user about documents and queries that are left out, a sentence each."""
    notes = []
    if empty:
        notes.append(f"documents left out, as they have neither title nor text: {empty:,}")
    if own_documents:
        notes.append(
            f"queries that are documents of the corpus, under the same id and with the same text: {own_documents:,}; "
            "each is left out of its own results, as BEIR does"
        )
    return notes


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A query of the split.

    A document is identified by the position of its first chunk; an undivided document has only that position.
    """

    id: str
    text: str
    relevant: Mapping[int, int]  # documents with their grades, 1 or more; empty if the query is unanswerable
    # documents that an unanswerable query was judged against, none of which answers; empty if it is answerable, or if
    # it is unanswerable whatever the document
    judged: tuple[int, ...] = ()
    origin: Origin = "human"
    # positions of the relevant chunks of each document that the qrels do not name as a whole; every chunk of the other
    # documents is relevant. None if the corpus has no chunks
    chunks: Mapping[int, tuple[int, ...]] | None = None
    weight: float = 1.0  # number of queries that this one stands for: the inverse of the probability that it was judged
    # positions of the passages that are the query itself (`own_documents`). They are left out of its results; for most
    # queries there are none
    own_passages: tuple[int, ...] = ()
    # other documents with their grades, below the lowest that answers, which gain in NDCG
    lesser: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        identifier: str,
        query: DatasetQuery,
        judgements: Mapping[JudgedId, Judgement],
        parents: NDArray[np.int32] | None,
        own_passages: tuple[int, ...] = (),
    ) -> Self:
        """Make a labelled query from its judgements.

        The grade of a document is the highest grade of the document or of its chunks. A chunk is relevant if it, or its
        document, answers the query. Weights of judgements take precedence over the weight of the query: the query gets
        the smallest weight of its relevant documents, which belongs to the judgement that was most likely to be made.

        Args:
            parents: (N,) int32, the first chunk of each passage's document; None if the corpus has no chunks.
            own_passages: Passages that are the query itself; if they are judged relevant, they count as results.
        """
        relevant: dict[int, int] = {}
        chunks: dict[int, tuple[int, ...]] = {}
        lesser: dict[int, int] = {}
        named_documents: set[int] = set()
        judged: dict[int, None] = {}  # keeps the order
        for judged_id, (grade, _) in judgements.items():
            if judged_id == NOWHERE:
                continue
            position, names_document = judged_id
            document = position if parents is None else int(parents[position])
            judged[document] = None
            if grade < 0:
                lesser[document] = max(-grade, lesser.get(document, 0))
            if grade >= 1:
                relevant[document] = max(grade, relevant.get(document, 0))
                if names_document:
                    named_documents.add(document)
                else:
                    chunks[document] = (*chunks.get(document, ()), position)
        partial = {document: positions for document, positions in chunks.items() if document not in named_documents}
        deciding = [judgement for judgement in judgements.values() if judgement.grade >= 1 or not relevant]
        weight = min((judgement.weight for judgement in deciding if judgement.weight is not None), default=query.weight)
        if any((passage if parents is None else int(parents[passage])) in relevant for passage in own_passages):
            own_passages = ()
        return cls(
            identifier,
            query.text,
            relevant,
            () if relevant else tuple(judged),
            query.origin,
            None if parents is None else partial,
            weight,
            own_passages,
            {document: grade for document, grade in lesser.items() if document not in relevant},
        )

    @property
    def gains(self) -> list[int]:
        """Grades of the documents that gain in NDCG."""
        return [*self.relevant.values(), *self.lesser.values()]

    def grade(self, position: int, document: int) -> int:
        """Return the grade of a passage: that of its document if the passage is relevant, else 0."""
        # It is negative if the document does not answer, and gains in NDCG.
        if self.chunks is not None and position not in self.chunks.get(document, (position,)):
            return 0
        return self.relevant.get(document, 0) or -self.lesser.get(document, 0)


@dataclass(frozen=True)
class OtherQueries:
    """Queries of a data set that people have not judged (`taugate.data.beir`)."""

    splits: tuple[str, ...]
    unjudged: list[str]  # texts of other queries by people that have not been judged completely
    generated: list[LabelledQuery]  # answerable queries made by a rule or a language model
    # ids of queries judged only on results that the service showed, so that none of them can be a miss
    seen_only: frozenset[str]
    # for each query of `unjudged`, the passages that are the query itself, as in `LabelledQuery.own_passages`
    unjudged_own: Sequence[tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class LabelledQueries(ABC):
    """The queries of one split with their qrels. Documents are numbered from 0."""

    name: str
    split: str
    answerable: list[LabelledQuery]  # queries with a relevant document, in the order of the file
    unanswerable: list[LabelledQuery]  # queries without a relevant document, in the order of the file
    sha256: Mapping[str, str]  # digests of the files that they were read from, by the names of `DataRecord.sha256`
    # queries outside the split, for calibration with few labels; None if only the split is used
    other_queries: OtherQueries | None = None
    relevant_from: int | None = None  # the lowest grade that answers; None for 1

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
