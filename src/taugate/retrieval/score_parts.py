"""The two parts of a score, the cosine and the lexical share, and the words behind the second."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from taugate.retrieval.index.words import query_terms, spellings
from taugate.retrieval.vectors.queries import HybridVectors
from taugate.retrieval.vectors.similarity import Float32, shortest_decimal

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts does not need
    from taugate.retrieval.index.hybrid import HybridIndex

MATCHED_WORDS = "words of the query that the passage contains, as the query spells them; present beside `parts.lexical`"


class Parts(BaseModel):
    """The parts of a score, which is their sum in float32."""

    cosine: float = Field(description="cosine similarity of query and passage")
    lexical: float | None = Field(
        default=None, ge=0, description="weighted share of words in common; absent if the score has no lexical part"
    )


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """The parts of the scores of n documents for one query.

    Attributes:
        cosines: (n,) float32.
        lexical: (n,) float32 weighted shares; the float32 sum with `cosines` is the score. None if the score is the
            cosine alone.
        matched_words: Words of the query that each document has, spelled and ordered as in the query; None if
            `lexical` is.
    """

    cosines: Float32
    lexical: Float32 | None = None
    matched_words: list[list[str]] | None = None

    def of(self, row: int) -> dict[str, float]:
        """Return the parts of the score of one document, by the names of `Parts`."""
        parts = {"cosine": shortest_decimal(self.cosines[row])}
        return parts if self.lexical is None else parts | {"lexical": shortest_decimal(self.lexical[row])}


def score_parts(
    words: "HybridIndex | None", text: str, vector: Float32, positions: NDArray[np.int64], scores: Float32
) -> ScoreParts:
    """Return the parts of scores of one query.

    Args:
        words: Index that computed the scores; None if they have no lexical part.
        text: Text of the query.
        vector: (d',) float32, its vector.
        positions: (n,) int64 positions of the documents.
        scores: (n,) float32.
    """
    if words is None:
        return ScoreParts(scores)
    rule = words.lexical.statistics.rule
    terms = query_terms(text, rule)
    cosines, lexical = words.parts(HybridVectors(vector[None], (terms,)), positions[None])
    spelled = spellings(text, rule)
    matched = [
        [word for term, word in spelled.items() if term in document]
        for document in words.lexical.matched(terms, positions)
    ]
    return ScoreParts(cosines[0], lexical[0], matched)
