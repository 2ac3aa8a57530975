"""A release that serves requests or cuts the results of another retriever, and the state of the process around it."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Generic, NamedTuple, Self, TypeVar

from pydantic import BaseModel, Field

from taugate.policy.names import PolicyKind
from taugate.release.layout import GOLDEN
from taugate.release.manifest import RunManifest
from taugate.release.queries import CurvePoint, Reference, quantiles, threshold_curve
from taugate.release.verify import TrustedKeys
from taugate.retrieval import golden as golden_results
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.gate import Gate
from taugate.retrieval.golden import GoldenResults
from taugate.retrieval.index.top_k import Fields
from taugate.service.drift.alarms import NO_DRIFT
from taugate.service.drift.query_log import WatchedRelease
from taugate.service.drift.watch import DriftWatch
from taugate.service.errors import EncoderAway, EngineAway, NotReady, UnsupportedByRelease
from taugate.service.pipeline.reply import CachedSearch

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.reader import Release
    from taugate.service.pipeline.search import SearchPipeline


Result = TypeVar("Result")
_Quantiles = Annotated[list[float], Field(min_length=101, max_length=101)]


@dataclass(frozen=True)
class GateRelease:
    """An open release that was calibrated on a run."""

    gate: Gate
    golden: Sequence[GoldenResults] = ()  # golden questions; empty in releases of versions without them
    # what is closed with the release, such as the lock that prevents its removal
    resources: ExitStack = field(default_factory=ExitStack)
    documents: None = None
    questions: Sequence[bytes] = ()
    fields: Fields = field(default_factory=Metadata)  # the metadata fields that filters of API keys can name: none

    @classmethod
    def load(cls, release: Path, trusted: TrustedKeys | None) -> Self:
        """Verify and open a release; see Gate.load for the parameters and errors."""
        gate = Gate.load(release, trusted)
        return cls(gate, golden_results.read_golden_results(release / GOLDEN) if GOLDEN in gate.manifest.files else ())

    @property
    def manifest(self) -> RunManifest:
        """Manifest of the release."""
        return self.gate.manifest

    @property
    def reference(self) -> Reference:
        """Scores of the calibration queries, for comparison with live ones."""
        return self.gate.reference

    def close(self) -> None:
        """Allow the release to be removed."""
        self.resources.close()


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
    """Return the reply of GET /release/reference, a ReferenceResponse."""
    # JSON of some 20 kB. Takes milliseconds, or half a second with 100,000 queries.
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
        curve=threshold_curve(reference, policy.kind, None if policy.threshold is None else policy.tau),
    )
    absent = {"random"} if response.random is None else None
    return response.model_dump_json(exclude=absent).encode()


class InFlight:
    """Counts requests: `with in_flight:` around each. Belongs to one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def __enter__(self) -> None:
        self._count += 1
        self._empty.clear()

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._empty.set()

    async def drained(self) -> None:
        """Wait until no request is in flight."""
        await self._empty.wait()


class Opened(NamedTuple):
    """A release that is open."""

    release: "Release | GateRelease"
    pipeline: "SearchPipeline | None" = None  # searches it; None if it has no documents
    gate: GateRelease | None = None  # the release itself if it cuts the results of another retriever; else None

    def close(self) -> None:
        """Finish the current queries, refuse the waiting ones, and close the release."""
        if self.pipeline is not None:
            self.pipeline.close()
        self.release.close()


class ActiveRelease:
    """A release that serves requests: it is searched, or cuts results of another retriever."""

    def __init__(
        self,
        serves: Opened,
        drift: DriftWatch | None,
        search: CachedSearch | None = None,
        memory_warning: str | None = None,
    ) -> None:
        """Start serving searches, or a gate if `search` is None."""
        self._serves, self._search = serves, search
        self.drift, self.memory_warning = drift, memory_warning
        self.loaded_at = datetime.now(UTC)
        self.reference = ComputedOnce(lambda: reference_report(self.watched))
        self.in_flight = InFlight()

    @property
    def watched(self) -> WatchedRelease:
        """What both kinds of releases have: manifest, reference and, if they are searched, documents."""
        return self._serves.release

    @property
    def pipeline(self) -> "SearchPipeline | None":
        """The search pipeline; None if the release has no documents."""
        return self._serves.pipeline

    @property
    def search(self) -> CachedSearch:
        """The searches; raises UnsupportedByRelease if the release has no documents."""
        if self._search is None:
            raise UnsupportedByRelease(
                "the release in service was calibrated on a run of another retriever, so it has no documents to "
                "search; send the retriever's results to /gate"
            )
        return self._search

    @property
    def gate(self) -> GateRelease:
        """The gate; raises UnsupportedByRelease if the release has documents of its own."""
        if self._serves.gate is None:
            raise UnsupportedByRelease(
                "the release in service has documents of its own, which /search searches; to cut results of another "
                "retriever, serve a release of `taugate calibrate-run`"
            )
        return self._serves.gate

    @property
    def release(self) -> "Release":
        """The release that is searched; raises UnsupportedByRelease if it has no documents."""
        return self.search.pipeline.release

    @property
    def release_id(self) -> str:
        """Id of the release."""
        return self.watched.manifest.release_id

    def drift_report(self, permitted: Filter) -> bytes:
        """Return the field `drift` of replies, as JSON."""
        # A key with a filter (`permitted`) is told nothing, because drift reveals the traffic of other keys.
        return NO_DRIFT if self.drift is None or permitted else self.drift.report

    async def close(self, *, replaced: bool = False) -> None:
        """Finish the current queries, refuse the waiting ones, and stop watching."""
        # If another release has `replaced` this one, its drift alarms are deleted.
        if self.pipeline is not None:
            await asyncio.to_thread(self.pipeline.close)
        if self.drift is not None:
            await self.drift.close(forget=replaced)
        await asyncio.to_thread(self._serves.release.close)


class State:
    """A state of a process; `stopped` once requests are refused because the service has stopped."""

    # the release that is active, or was until the service stopped; None if none was loaded
    release: ActiveRelease | None = None
    error: Exception | None = None
    stopped = False

    def active(self) -> ActiveRelease:
        """Return the active release; raises NotReady, EngineAway or EncoderAway if none serves."""
        raise NotReady("the release is being loaded")

    def ready(self) -> ActiveRelease:
        """Return the active release if new requests may come; raises as `active`."""
        return self.active()

    def then(self, following: "State") -> "State":
        """Return the state after `following` has begun."""
        return following


class Loading(State):
    """The first release is being loaded."""


@dataclass(frozen=True)
class Waiting(State):
    """The first release cannot be loaded until something else responds; `reason` says that it does not."""

    reason: type[EngineAway | EncoderAway]

    def active(self) -> ActiveRelease:
        """See State."""
        raise self.reason()


@dataclass(frozen=True)
class Ready(State):
    """A release serves."""

    release: ActiveRelease

    def active(self) -> ActiveRelease:
        """See State."""
        return self.release


@dataclass(frozen=True)
class Failed(State):
    """No release could be loaded, which ends the process."""

    error: Exception

    def active(self) -> ActiveRelease:
        """See State."""
        raise NotReady("no release could be loaded")


class Ending(State):
    """The service is about to stop, and serves as in the state before until it has `stopped`."""

    def __init__(self, before: State, *, stopped: bool = False) -> None:
        self._before, self.stopped = before, stopped
        self.release, self.error = before.release, before.error

    def active(self) -> ActiveRelease:
        """See State."""
        return self.ready() if self.stopped else self._before.active()

    def ready(self) -> ActiveRelease:
        """See State."""
        raise NotReady("the service is shutting down")

    def then(self, following: State) -> State:
        """See State; the service does not end later because a release was loaded."""
        return Ending(following, stopped=self.stopped)
