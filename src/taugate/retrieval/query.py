"""A query and its answer: the results kept from the top-K, or the reason for none, and what explains one document.

Labels, drift detection, explanations and clients read why a reply cannot be compared with the calibration, and guess
nothing from what a reply lacks. Exploration shows a few results below the threshold, so that users can tell whether the
threshold drops answers, chosen by a hash of release, query and result: caches and replicas agree.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from taugate.errors import InputError
from taugate.policy.abstention import RefusalScore
from taugate.policy.arrays import Float32, HybridVectors
from taugate.policy.names import PolicyKind
from taugate.policy.policy import Mask
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.store import Document, Documents
from taugate.retrieval.encoder.encoder import Tokens
from taugate.retrieval.index.words import query_terms, spellings
from taugate.retrieval.vectors import shortest_decimal
from taugate.storage.files import Json

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts does not need
    from taugate.retrieval.index.hybrid import HybridIndex


NOT_COMPARABLE = "why drift detection and labels do not compare the reply with the calibration; absent if they do"

MAX_EXPLORED = 0.1  # share of the dropped results; more would undo the threshold


MATCHED_WORDS = "words of the query that the passage contains, as the query spells them; present beside `parts.lexical`"

Reason = Literal["all_below_threshold", "no_documents_match_filter", "unanswerable", "unreadable"]
GateReason = Literal["no_results", "all_below_threshold", "unanswerable"]
GroupBy = Literal["document"]
Stage = Literal["first", "second"]
# Why a query has the first stage's results: no time was left, the second one failed or had failed shortly
# before, or the query is a vector.
Skipped = Literal["deadline", "failed", "paused", "no_text"]

# The outcome for the document: it is kept, or dropped by this rule first.
Rule = Literal[
    "kept", "min_results", "threshold", "unanswerable", "unreadable", "rank", "chunk", "index", "filter", "key_filter"
]


class NotComparable(StrEnum):
    """A reason; of several that apply, the first of this list is given. Names are those of replies and of the log."""

    UNREADABLE = "unreadable"  # the encoder does not know most of the text
    TRUNCATED = "truncated"  # the encoder reads only the beginning of the text
    FILTERED = "filtered"  # a filter, of the request or of the API key, selects the documents
    VECTOR = "vector"  # the query is a vector of the client, and the calibration encoded its queries
    PRECISION = "precision"  # the encoder in use has another precision than the calibrated one
    FALLBACK = "fallback"  # the first stage's results, because the second stage did not answer
    FEWER_RESULTS = "fewer_than_k"  # another retriever gave fewer results than the calibration's K
    THRESHOLD = "threshold"  # the request has its own threshold
    K = "k"  # the request considers more or fewer results than the calibration's K
    GROUPED = "grouped"  # results are grouped by document, which reach further down the list


# With these, the calibration's K results have comparable scores, and only others of them are shown.
SAME_SCORES = frozenset({NotComparable.THRESHOLD, NotComparable.K, NotComparable.GROUPED})
# With these, a reply may be calibrated all the same: by a stratum, by the first stage, or by what the policy covers.
MAY_BE_CALIBRATED = SAME_SCORES - {NotComparable.THRESHOLD} | {NotComparable.FILTERED, NotComparable.FALLBACK}


@dataclass(frozen=True, slots=True)
class Exploration:
    """Selects the dropped results to show."""

    share: float  # probability that a dropped result is shown, 0…1
    release: str  # id of the release, used as the seed

    def draw(self, text: str, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for each dropped result of a query whether it is shown, (n,) bool."""
        seed = hashlib.sha256(f"{self.release}\n{text}".encode())
        return np.fromiter((self._shows(seed, position) for position in positions.tolist()), dtype=np.bool_)

    def _shows(self, seed: "hashlib._Hash", position: int) -> bool:
        digest = seed.copy()
        digest.update(b"\n%d" % position)
        return int.from_bytes(digest.digest()[:8]) < self.share * 2**64


class Parts(BaseModel):
    """The parts of a score, which is their sum in float32."""

    cosine: float = Field(description="cosine similarity of query and passage")
    lexical: float | None = Field(
        default=None, ge=0, description="weighted share of words in common; absent if the score has no lexical part"
    )


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """The parts of the scores of n documents for one query."""

    cosines: Float32  # (n,) float32
    # (n,) float32 weighted shares; the float32 sum with `cosines` is the score. None if the score is the cosine alone
    lexical: Float32 | None = None
    # words of the query that each document has, spelled and ordered as in the query; None if `lexical` is
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
        """Return the documents of the results, in order."""
        return [
            self.documents[position] if position in self.documents else documents[position]
            for position in self.positions.tolist()
        ]


class UnknownDocument(InputError):
    """The release has no document with this id."""


class Explanation(BaseModel):
    """What a search does with one document, as POST /explain and `taugate explain` tell it.

    If the key's filter hides the document, the explanation says only that. If the request's own filter excludes it, the
    explanation has no rank and no score.
    """

    document_id: str = Field(description="id of the document")
    id: str | None = Field(
        description="the chunk that is explained: the one that the search returns, else the one with the highest score"
    )
    # Exact for every kind of index in the process; with an engine the place in the search's list. If results are
    # grouped, documents are counted.
    rank: int | None = Field(ge=1, description="exact rank among all passages that the filters permit")
    ranked: int | None = Field(ge=1, description="number of passages that have a rank")
    score: float | None = Field(
        description="similarity to the query: the cosine, or the sum of `parts` if there are two"
    )
    first_stage_rank: int | None = Field(
        default=None, ge=1, description="rank of the first stage; present if a second stage ranked the results"
    )
    first_stage_score: float | None = Field(default=None, description="score of the first stage; present likewise")
    relevance: float | None = Field(
        ge=0, le=1, description="probability that the passage is relevant; null if the release does not model relevance"
    )
    policy: PolicyKind = Field(description="kind of value that is compared with `threshold`")
    compared: float | None = Field(description="the value that the policy compares with `threshold`")
    threshold: float | None = Field(description="threshold in force; null if there is none")
    kept: bool = Field(description="true if the search returns the passage")
    rule: Rule = Field(description="the rule that decided; every value except `kept` and `min_results` means dropped")
    why: str = Field(description="the same as a sentence, including how near the document was")
    truncated: bool | None = Field(description="true if the document's text is longer than the encoder can read")
    query_truncated: bool = Field(default=False, description="true if the query is longer than the encoder can read")
    not_comparable: str | None = Field(default=None, description=NOT_COMPARABLE)
    filtered: bool = Field(description="true if the filter of the request or of the key excludes the document")
    parts: Parts | None = Field(default=None, description="the parts of `score`; absent if it has no lexical part")
    matched_words: list[str] | None = Field(default=None, description=MATCHED_WORDS)

    def to_reply(self, release: str) -> dict[str, Json]:
        """Return the JSON object to send, which names the release; optional fields only if they say something."""
        return {**self.model_dump(exclude_defaults=True), "release": release}
