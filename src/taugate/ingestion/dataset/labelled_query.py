"""A query of a split with its judgements."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.ingestion.dataset.judgements import NOWHERE, JudgedId, Judgement
from taugate.ingestion.dataset.queries import DatasetQuery, Origin


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A query of the split.

    A document is identified by the position of its first chunk; an undivided document has only that position.

    Attributes:
        id: Its `_id`.
        text: Text of the query.
        relevant: Documents with their grades, 1 or more; empty if the query is unanswerable.
        judged: Documents that an unanswerable query was judged against, none of which answers; empty if it is
            answerable, or if it is unanswerable whatever the document.
        origin: Source of the query.
        chunks: Positions of the relevant chunks of each document that the qrels do not name as a whole; every chunk
            of the other documents is relevant. None if the corpus has no chunks.
        weight: Number of queries that this one stands for: the inverse of the probability that it was judged.
        own_passages: Positions of the passages that are the query itself (`own_documents`). They are left out of its
            results; for most queries there are none.
        lesser: Other documents with their grades, below the lowest that answers, which gain in NDCG.
    """

    id: str
    text: str
    relevant: Mapping[int, int]
    judged: tuple[int, ...] = ()
    origin: Origin = "human"
    chunks: Mapping[int, tuple[int, ...]] | None = None
    weight: float = 1.0
    own_passages: tuple[int, ...] = ()
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

        The grade of a document is the highest grade of the document or of its chunks. A chunk is relevant if it, or
        its document, answers the query. Weights of judgements take precedence over the weight of the query: the
        query gets the smallest weight of its relevant documents, which belongs to the judgement that was most likely
        to be made.

        Args:
            identifier: `_id` of the query.
            query: Text, origin and weight.
            judgements: Judgements by the ids that the query was judged against.
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
        """Return the grade of a passage: that of its document if the passage is relevant, else 0.

        It is negative if the document does not answer, and gains in NDCG.

        Args:
            position: Position of the passage.
            document: Position of the document that the passage belongs to.
        """
        if self.chunks is not None and position not in self.chunks.get(document, (position,)):
            return 0
        return self.relevant.get(document, 0) or -self.lesser.get(document, 0)
