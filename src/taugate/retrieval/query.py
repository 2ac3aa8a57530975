"""A search, and the answer to it: what is kept of the top-K, and why nothing else is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.store import Document, Documents
from taugate.retrieval.encoder.encoder import Tokens
from taugate.retrieval.exploration import Exploration
from taugate.retrieval.policy.policy import Mask, PolicyKind
from taugate.retrieval.vectors.similarity import Float32

Reason = Literal["all_below_threshold", "no_documents_match_filter", "unanswerable", "unreadable"]
GroupBy = Literal["document"]


@dataclass(frozen=True, slots=True)
class Query:
    """One search.

    Attributes:
        text: What is asked.
        k: How many results are considered.
        threshold: Overrides τ, and answers a query that would be refused; None takes the policy's.
        min_results: So many are returned even where they score below the threshold, or the query is refused.
        filter: The documents that are searched; None, or a filter without a condition, is all.
        permitted: The documents that whoever asks may see, within which the filter holds. No query is refused there for
            lack of an answer, as the words of all documents have a say in that.
        group_by: `document` counts documents, and returns the best passage of each; None counts passages.
        exploration: Shows a few of the results that τ drops; None shows none.
        truncated: The encoder reads only the beginning of the text.
        unreadable: The encoder does not know most of the text, so that the query is refused. Both are False until the
            text is tokenized, see `as_read`.
    """

    text: str
    k: int
    threshold: float | None = None
    min_results: int = 0
    filter: Filter | None = None
    permitted: Filter = ()
    group_by: GroupBy | None = None
    exploration: Exploration | None = None
    truncated: bool = False
    unreadable: bool = False

    def as_read(self, tokens: Tokens) -> Self:
        """Return the query with what the encoder reads of it.

        Args:
            tokens: Of its text.
        """
        if self.truncated == tokens.truncated and self.unreadable == tokens.unreadable:
            return self
        return replace(self, truncated=tokens.truncated, unreadable=tokens.unreadable)

    @property
    def is_comparable(self) -> bool:
        """True if the calibration speaks of such queries: read whole, and asked of all documents."""
        return not (self.filter or self.permitted or self.truncated or self.unreadable)


@dataclass(frozen=True, slots=True)
class Uncut:
    """A query's results before the cut, which drift is watched by, whatever the query's own k and threshold are.

    Attributes:
        scores: (K,) float32 similarities of the first K, K that of the policy.
        kept: How many of them the policy keeps; 0 where the query is refused.
    """

    scores: Float32
    kept: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The results that one query keeps of its top-K, best first, and why it keeps no other.

    Attributes:
        positions: (kept,) int64 positions of the documents.
        scores: (kept,) float32 similarities.
        ranks: (kept,) int64 places in the uncut list, from 1; a cut by probability does not always keep from the top
            down.
        relevance: (kept,) float32 probabilities that the documents are relevant; None where the release has no model of
            it.
        below_threshold: (kept,) bool, True where only `min_results` or exploration keeps a document.
        propensities: (kept,) float32 probabilities that the query shows each: the share of exploration where only that
            does, else 1.
        considered: How many results the index returned, at most k.
        best_score: The highest similarity, kept or not; None without a result.
        threshold: That was in force, None where none was.
        policy: What was compared with it.
        calibrated: Whether a calibrated threshold, with the evidence for it, was in force, and every result passed it.
            Within a filter it is in a certified stratum alone, as the top-K has other documents there than those that
            the threshold was measured on; grouped by document it is for k = 1 alone, as more documents reach further
            down the list of passages.
        reason: Why nothing is kept, None where something is.
        refused: Whether the query is refused as a whole.
        uncut: For drift, of the passages, grouped or not; None if the query is not `is_comparable`.
        found: (w,) int64 positions of all results of the search, of which this is the cut; None where they are grouped.
        truncated: Whether the encoder read only the beginning of the query, of which nothing was measured.
        approximate: Whether the search was within a filter and through an engine, which may miss passages there.
        documents: Those of the results, by position, where the search brought them; empty where they are in this
            process.
    """

    positions: NDArray[np.int64]
    scores: Float32
    ranks: NDArray[np.int64]
    relevance: Float32 | None
    below_threshold: Mask
    propensities: Float32
    considered: int
    best_score: float | None
    threshold: float | None
    policy: PolicyKind
    calibrated: bool
    reason: Reason | None
    refused: bool
    uncut: Uncut | None
    found: NDArray[np.int64] | None
    truncated: bool = False
    approximate: bool = False
    documents: Mapping[int, Document] = field(default_factory=dict)

    def read(self, documents: Documents) -> list[Document]:
        """Return the documents of the results, in their order.

        Args:
            documents: Of the release, by position.
        """
        positions = self.positions.tolist()
        return [self.documents[each] if each in self.documents else documents[each] for each in positions]
