"""What an explanation says about one document of a search."""

from typing import Literal

from pydantic import BaseModel, Field

from taugate.errors import InputError
from taugate.retrieval.comparability import NOT_COMPARABLE
from taugate.retrieval.policy.names import PolicyKind
from taugate.retrieval.score_parts import MATCHED_WORDS, Parts
from taugate.storage.json_values import Json

# The outcome for the document: it is kept, or dropped by this rule first.
Rule = Literal[
    "kept", "min_results", "threshold", "unanswerable", "unreadable", "rank", "chunk", "index", "filter", "key_filter"
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
