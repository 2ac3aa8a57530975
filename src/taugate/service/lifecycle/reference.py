"""Summarizes a release's calibration for charts; computed once, at the first request."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import orjson

from taugate.retrieval.release.reader import Release
from taugate.retrieval.release.threshold_curve import quantiles, threshold_curve

Result = TypeVar("Result")


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


def reference_report(release: Release) -> bytes:
    """Return the reply of GET /release/reference: distributions of similarities, and the curve of thresholds.

    JSON of some 20 kB. Takes milliseconds, or half a second with 100,000 queries.
    """
    reference, policy = release.reference, release.manifest.policy
    queries, k = reference.top.shape
    return orjson.dumps(
        {
            "release": release.manifest.release_id,
            "policy": policy.kind,
            "threshold": policy.tau,
            "queries": queries,
            "k": k,
            "topk": quantiles(reference.top),
            "correct": quantiles(reference.correct),
            "random": quantiles(reference.random),
            "curve": [point.model_dump() for point in threshold_curve(reference, policy.kind, policy.tau)],
        }
    )
