"""A query and its answer: the results kept from the top-K, and the reason if there are none."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.comparability import NotComparable
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.store import Document, Documents
from taugate.retrieval.encoder.encoder import Tokens
from taugate.retrieval.exploration import Exploration
from taugate.retrieval.policy.abstention import RefusalScore
from taugate.retrieval.policy.names import PolicyKind
from taugate.retrieval.policy.policy import Mask
from taugate.retrieval.score_parts import ScoreParts
from taugate.retrieval.vectors.similarity import Float32

Reason = Literal["all_below_threshold", "no_documents_match_filter", "unanswerable", "unreadable"]
GateReason = Literal["no_results", "all_below_threshold", "unanswerable"]
GroupBy = Literal["document"]
Stage = Literal["first", "second"]
# Why a query has the first stage's results: no time was left, the second one failed or had failed shortly
# before, or the query is a vector.
Skipped = Literal["deadline", "failed", "paused", "no_text"]


@dataclass(frozen=True, slots=True)
class Query:
    """One search.

    Attributes:
        text: Text of the query; may be empty if there is a vector.
        k: Number of results that are considered.
        threshold: Overrides τ, and answers a query that would be refused. None uses the policy's threshold.
        min_results: At least this many results are returned, even if they score below the threshold or the query is
            refused.
        filter: Documents to search. None, or a filter without conditions, searches all.
        permitted: Documents that the caller may see; `filter` applies within them. Queries with such a limit are not
            refused as unanswerable by a score that uses the words of all documents.
        group_by: `document` counts documents and returns the best passage of each; None counts passages.
        exploration: Shows a few of the results that τ drops; None shows none.
        with_parts: Whether the answer has the parts of its scores.
        truncated: Whether the encoder reads only the beginning of the text. False until the text is tokenized, see
            `as_read`.
        unreadable: Whether most of the text is unknown to the encoder, so that the query is refused. False until the
            text is tokenized.
        vector: Vector of the query in place of the encoder's, as the bytes of (d,) float32 of unit length; None if the
            text is encoded. Bytes, because queries are compared, and are parts of cache keys.
    """

    text: str
    k: int
    threshold: float | None = None
    min_results: int = 0
    filter: Filter | None = None
    permitted: Filter = ()
    group_by: GroupBy | None = None
    exploration: Exploration | None = None
    with_parts: bool = False
    truncated: bool = False
    unreadable: bool = False
    vector: bytes | None = None

    @property
    def identity(self) -> str:
        """The text, or the digest of the vector if there is no text: equal for equal queries."""
        if self.text or self.vector is None:
            return self.text
        return f"vector:{hashlib.sha256(self.vector).hexdigest()}"

    def as_read(self, tokens: Tokens) -> Self:
        """Return the query with `truncated` and `unreadable` set from the tokens of its text."""
        if self.truncated == tokens.truncated and self.unreadable == tokens.unreadable:
            return self
        return replace(self, truncated=tokens.truncated, unreadable=tokens.unreadable)


@dataclass(frozen=True, slots=True)
class Answer:
    """The results that a query keeps from its top-K, best first, and the reason if it keeps none.

    Attributes:
        positions: (kept,) int64 positions of the documents.
        scores: (kept,) float32 similarities.
        ranks: (kept,) int64 ranks before the cut, from 1. A cut by probability may skip ranks.
        relevance: (kept,) float32 probabilities that the documents are relevant; None if the release has no relevance
            model.
        below_threshold: (kept,) bool, True for documents kept only by `min_results` or exploration.
        propensities: (kept,) float32 probabilities that the query shows the result: the share of exploration if only
            exploration keeps it, else 1.
        considered: Number of results that the index returned, at most k.
        best_score: Highest similarity, kept or not; None without a result.
        threshold: Threshold in force; None if there was none.
        policy: Kind of score that was compared with the threshold.
        not_comparable: Why the results cannot be compared with those of the calibration; None if they can.
        calibrated: Whether a calibrated threshold with its evidence was in force and every result passed it. Filtered
            searches count only in a certified stratum, because their top-K holds other documents than the threshold was
            measured on. Grouped searches count only for k = 1, because more documents reach further down the list of
            passages.
        reason: Why nothing is kept; None if any result is.
        refused: Whether the query is refused as a whole.
        refusal: Score of the query and the threshold ρ that it was compared with; None if nothing was compared.
        uncut: (K,) float32 similarities of the first K passages before the cut, grouped or not, with the K of the
            policy. For drift detection, so independent of the query's own k and threshold; None if scores are not
            comparable.
        uncut_kept: Number of these that the policy keeps; 0 if the query is refused.
        retrieved: (w,) int64 positions of all results before the cut; None if they are grouped.
        truncated: Whether the encoder read only the beginning of the query; no calibration covers such queries.
        approximate: Whether the search was filtered by an engine, which may miss passages then.
        parts: Parts of the scores; None unless the query asks for them.
        stage: Stage that ranked the results and whose threshold is in force; None if the release has one stage.
        skipped: Why the second stage did not; None if it did, or if there is none.
        first_scores: (kept,) float32 scores of the first stage; None unless the second stage ranked the results.
        documents: Documents of the results by position if the search returned them; empty if the corpus is in this
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
    not_comparable: NotComparable | None
    calibrated: bool
    reason: Reason | GateReason | None
    refused: bool
    refusal: RefusalScore | None
    uncut: Float32 | None
    uncut_kept: int
    retrieved: NDArray[np.int64] | None
    truncated: bool = False
    approximate: bool = False
    parts: ScoreParts | None = None
    stage: Stage | None = None
    skipped: Skipped | None = None
    first_scores: Float32 | None = None
    documents: Mapping[int, Document] = field(default_factory=dict)

    def read(self, documents: Documents) -> list[Document]:
        """Return the documents of the results, in order.

        Args:
            documents: All documents of the release, by position.
        """
        return [
            self.documents[position] if position in self.documents else documents[position]
            for position in self.positions.tolist()
        ]
