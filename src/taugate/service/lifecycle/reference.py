"""Summarizes a release's calibration for charts; computed once, at the first request."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, Field

from taugate.retrieval.policy.names import PolicyKind
from taugate.retrieval.release.threshold_curve import CurvePoint, quantiles, threshold_curve
from taugate.service.drift.watched import WatchedRelease

Result = TypeVar("Result")
_Quantiles = Annotated[list[float], Field(min_length=101, max_length=101)]


class ReferenceResponse(BaseModel):
    """The calibration of the release in service, as data for a chart.

    `topk`, `correct` and `random` are the percentiles 0 to 100 of the similarity between calibration queries and their
    top-K results, their most similar relevant document, and a random document.
    """

    release: str
    policy: PolicyKind
    threshold: float | None = Field(description="threshold of the policy; null if it keeps everything")
    queries: int = Field(ge=1, description="number of answerable calibration queries")
    k: int = Field(ge=1, description="results considered per query")
    topk: _Quantiles
    correct: _Quantiles
    random: _Quantiles | None = Field(
        default=None, description="absent if the release was calibrated on a run, which scores no other documents"
    )
    curve: list[CurvePoint] = Field(
        description="at most 203 points in ascending order of threshold; empty if the policy is `probability` and the "
        "release does not record the relevance of its calibration results"
    )


class ComputedOnce(Generic[Result]):
    """A slow result, computed in a thread at the first call. Belongs to one event loop."""

    def __init__(self, compute: Callable[[], Result]) -> None:
        """Call `compute` once, in a thread."""
        self._compute = compute
        self._result: asyncio.Future[Result] | None = None

    async def get(self) -> Result:
        """Return the result; concurrent callers wait for the same computation."""
        if self._result is None:
            self._result = asyncio.ensure_future(asyncio.to_thread(self._compute))
        return await asyncio.shield(self._result)


def reference_report(release: WatchedRelease) -> bytes:
    """Return the reply of GET /release/reference, a ReferenceResponse.

    JSON of some 20 kB. Takes milliseconds, or half a second with 100,000 queries.
    """
    reference, policy = release.reference, release.manifest.policy
    queries, k = reference.top.shape
    response = ReferenceResponse(
        release=release.manifest.release_id,
        policy=policy.kind,
        threshold=policy.tau,
        queries=queries,
        k=k,
        topk=quantiles(reference.top),
        correct=quantiles(reference.correct),
        random=quantiles(reference.random) if len(reference.random) else None,
        curve=threshold_curve(reference, policy.kind, policy.tau),
    )
    absent = {"random"} if response.random is None else None
    return response.model_dump_json(exclude=absent).encode()
