"""What a release keeps of its calibration, in a form that a page can draw: made once, when somebody asks for it."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import orjson

from taugate.retrieval.release.reader import Release
from taugate.retrieval.release.threshold_curve import quantiles, threshold_curve

Result = TypeVar("Result")


class ComputedOnce(Generic[Result]):
    """A result that takes a while, computed in a thread for whoever asks first. Belongs to one event loop."""

    def __init__(self, compute: Callable[[], Result]) -> None:
        """compute: is called once, in a thread."""
        self._compute = compute
        self._result: asyncio.Future[Result] | None = None

    async def get(self) -> Result:
        """Return the result, also to callers who come while it is computed."""
        if self._result is None:
            self._result = asyncio.ensure_future(asyncio.to_thread(self._compute))
        return await asyncio.shield(self._result)


def reference_report(release: Release) -> bytes:
    """Return the reply of GET /release/reference: distributions of similarities, and the curve of thresholds.

    Args:
        release: Any; JSON of some 20 kB, which takes milliseconds, and half a second with 100,000 queries.
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
            "curve": [point._asdict() for point in threshold_curve(reference, policy.kind, policy.tau)],
        }
    )
