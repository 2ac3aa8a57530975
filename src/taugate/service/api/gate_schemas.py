"""Pydantic models of the requests and replies of /gate."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field
from pydantic.dataclasses import dataclass

from taugate.retrieval.gate import MAX_RESULTS, MAX_SCORES, ScoredResult
from taugate.retrieval.policy.names import PolicyKind
from taugate.retrieval.query import GateReason
from taugate.retrieval.release.state import CertifiedLoss, State
from taugate.service.api.schemas import (
    CERTIFIED,
    MAX_FLOAT32,
    PROVISIONAL,
    RELEASE_ID,
    Drift,
    K,
    QueryText,
    Refusal,
    StrictRequest,
    examples,
    limit_batch,
)

_Score = Annotated[float, Field(ge=-MAX_FLOAT32, le=MAX_FLOAT32)]


def _as_text(value: object) -> object:
    """Convert a number to text: many engines have numbers as ids."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_Text = Annotated[str, Field(min_length=1, max_length=1024)]
_Id = Annotated[_Text, BeforeValidator(_as_text, json_schema_input_type=_Text | int)]


# With slots, a result takes a quarter of the memory of a model: a body has up to ten thousand.
@dataclass(frozen=True, slots=True, config=ConfigDict(strict=True, allow_inf_nan=False, extra="ignore"))
class ScoredResultFields(ScoredResult):
    """A result of the retriever. Other fields, such as a text, are ignored."""

    id: _Id = Field(description="id of the document; a whole number is read as text")
    score: _Score = Field(description="score of the retriever, on the scale that was calibrated")
    scores: Annotated[dict[str, _Score | None], Field(max_length=MAX_SCORES)] | None = Field(
        default=None, description="further scores by name, if they were calibrated; null for a missing one"
    )


class GateRequest(StrictRequest):
    """The results of the retriever for a query, best first. `k` defaults to the K of the calibration.

    `query` does not change the reply. It is logged, and equal queries count once for drift.
    """

    model_config = examples(
        {
            "query": "How long does a permit take?",
            "results": [
                {"id": "permit-002", "score": 0.0325, "scores": {"bm25": 14.2, "cosine": 0.71}},
                {"id": "permit-017", "score": 0.0161, "scores": {"bm25": 9.8, "cosine": None}},
            ],
        }
    )

    query: QueryText | None = Field(default=None, description="text of the query")
    results: Annotated[list[ScoredResultFields], Field(max_length=MAX_RESULTS), FailFast()]
    k: K | None = Field(default=None, description="number of results to consider")


class GateBatchRequest(StrictRequest):
    """Results for several queries, each with the fields of /gate."""

    queries: Annotated[list[GateRequest], Field(min_length=1), FailFast(), BeforeValidator(limit_batch)]


class GoldenAnswer(StrictRequest):
    """What the retriever returns for a golden question, as deep as live requests."""

    query_id: str
    results: Annotated[list[ScoredResultFields], Field(max_length=MAX_RESULTS), FailFast()]


class GoldenRequest(StrictRequest):
    """Results for all golden questions."""

    queries: Annotated[list[GoldenAnswer], Field(min_length=1), FailFast(), BeforeValidator(limit_batch)]


class GoldenQuestion(BaseModel):
    """A question of the calibration."""

    query_id: str = Field(description="id of the query in the run")
    query: str | None = Field(description="its text; null if the run did not have it")


class GoldenResponse(BaseModel):
    """The golden questions. Send them to the retriever, and its results to POST /gate/golden."""

    queries: list[GoldenQuestion]
    release: str = Field(description=RELEASE_ID)


class GoldenCheckResponse(BaseModel):
    """The retriever is the one that was calibrated. Otherwise the reply is 409 `other_retriever`."""

    score: str = Field(description="what moved furthest beside its tolerance: `score`, or the name of a component")
    moved: float = Field(description="how far a quarter of its values moved at least")
    tolerance: float = Field(description="how far they may move")
    recorded: int = Field(ge=1, description="number of recorded results")
    returned: int = Field(ge=0, description="number of these that the retriever still returns")
    release: str = Field(description=RELEASE_ID)


class KeptResultFields(BaseModel):
    """A result that passed the threshold."""

    id: str = Field(description="id of the document")
    rank: int = Field(ge=1, description="rank by score among all results, from 1")
    score: float = Field(description="its score, as it was sent")
    relevance: float | None = Field(
        ge=0, le=1, description="probability that it is relevant; null if the release does not model relevance"
    )


class GateResponse(BaseModel):
    """The results that passed the threshold. `reason` says why `results` is empty."""

    results: list[KeptResultFields] = Field(description="the results, best first")
    threshold: float | None = Field(description="threshold in force; null if there is none")
    policy: PolicyKind = Field(description="kind of value that is compared with `threshold`")
    calibrated: bool = Field(description="true if the certificate of the threshold covers these results")
    why_not: str | None = Field(
        description="why `calibrated` is false, null if it is true: `fewer_than_k`, `not_sorted`, "
        "`outside_calibrated_range`, `missing_score:NAME`, `other_k`, `no_threshold`, or `calibration`"
    )
    calibration: State = Field(description=PROVISIONAL)
    certified: CertifiedLoss | None = Field(default=None, description=CERTIFIED)
    considered: int = Field(ge=0, description="number of results before the threshold was applied")
    dropped: int = Field(ge=0, description="number of results below the threshold")
    best_score: float | None = Field(description="score of the best result, kept or not; null without a result")
    reason: GateReason | None = Field(description="why `results` is empty; null if it is not")
    refuses: bool = Field(description="whether a rule refuses queries as a whole; if false, off-topic ones get results")
    refusal: Refusal | None = Field(default=None, description="absent if the release refuses no query as a whole")
    release: str = Field(description=RELEASE_ID)
    drift: Drift
    query_id: str = Field(pattern="^[0-9a-f]{32}$", description="id of this reply, for /feedback")


class GateBatchResponse(BaseModel):
    """Replies to a batch, in request order."""

    responses: list[GateResponse]
