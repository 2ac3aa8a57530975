"""Finds and loads releases, from the place and with the trusted keys of the settings, and watches their engine.

After a call that no server answered, the service replies 503 at once and probes the engine every second until it
responds. Unlike a circuit breaker that lets single queries through, this puts no query at risk, and it also notices the
recovery without traffic.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from taugate.errors import EncoderUnavailable, EngineUnavailable, InputError, ReleaseError, TaugateError
from taugate.policy.arrays import Float32
from taugate.registry.catalog import current_id, find, shadow_id
from taugate.registry.download import PRIVATE, private_copy, private_in_place, remote_current_id
from taugate.registry.history import lock_for_reading
from taugate.registry.transfer import update_copy
from taugate.release.engine import EngineRecord
from taugate.release.layout import CURRENT
from taugate.release.manifest import ReleaseManifest
from taugate.release.verify import TrustedKeys, is_of_run
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.encoder.encoder import EndpointAccess, RequestedPrecision
from taugate.retrieval.engines.engine import (
    Candidates,
    Collection,
    CollectionState,
    EngineAccess,
    Positions,
    Rows,
    engine_at,
)
from taugate.service.lifecycle.active import GateRelease, Opened
from taugate.service.metrics import Metrics
from taugate.service.runtime.resources import lower_priority
from taugate.service.settings import Settings
from taugate.storage.object_store import Store

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.reader import Release
    from taugate.service.pipeline.search import SearchPipeline

_log = logging.getLogger(__name__)

# Between probes of the engine, in seconds; short at first, because a single call may time out on a healthy one.
_FIRST_PAUSE, _PAUSE = 0.1, 1.0
Result = TypeVar("Result")

# Loads a release from its folder, with a number of encoder threads and an encoder of a precision.
Load = Callable[[Path, int, RequestedPrecision], "Release"]


def current_release(settings: Settings, *, at_start: bool = False) -> Path:
    """Return the folder of the current release; if releases are at a URL, update the local copy first."""
    # `at_start`, damage in the copy is repaired, and the copy is used as it is if the store is not responding or
    # its release does not verify: an older release is better than none.
    directory = settings.releases.directory
    if isinstance(settings.releases.location, str):
        try:
            update_copy(settings.releases.location, directory, configured_keys(settings), repair=at_start)
        except ReleaseError as error:
            if not at_start or not (directory / CURRENT).is_file():
                raise
            fields = {"reason": str(error)}
            _log.warning("cannot update the copy of the releases; using it as it is", extra={"fields": fields})
    return find(directory)


def promoted_id(settings: Settings) -> str | None:
    """Return the id of the release that was promoted last, which may not have been copied yet; None if none was."""
    if isinstance(settings.releases.location, str):
        return remote_current_id(Store(settings.releases.location))
    return current_id(settings.releases.directory)


def trusting(settings: Settings, engine: EngineAccess) -> Load:
    """Return a `Load` that refuses releases without a signature by a trusted key."""
    # The keys are read at each load, because they may have changed. If keys are trusted, a release is loaded from
    # a folder that only this user can write to.
    endpoint = endpoint_access(settings)

    def load_trusted(release: Path, threads: int, precision: RequestedPrecision) -> "Release":
        from taugate.retrieval.reader import load
        from taugate.retrieval.rerank.endpoint import endpoint_at
        from taugate.retrieval.rerank.stage import TextScorer

        def open_reranker(model: str | None) -> TextScorer:
            return endpoint_at(model, settings.rerank.url, settings.rerank.key_file)

        def open_one(folder: Path, trusted: TrustedKeys | None) -> "Release":
            return load(folder, threads, precision, trusted, engine, endpoint, open_reranker)

        return open_trusted(settings, release, open_one)

    return load_trusted


def endpoint_access(settings: Settings) -> EndpointAccess:
    """Return how to reach the endpoint of an encoder in time for the deadline of a request."""
    own, deadline_ms = settings.endpoint, settings.admission.deadline_ms
    return EndpointAccess(own.url, own.key_file, min(own.timeout_ms, 0.9 * deadline_ms) / 1000)


class _Opened(Protocol):
    """An open release; `resources` are closed with it."""

    @property
    def resources(self) -> ExitStack: ...


OpenedT = TypeVar("OpenedT", bound=_Opened)


def open_trusted(settings: Settings, release: Path, load: Callable[[Path, TrustedKeys | None], OpenedT]) -> OpenedT:
    """Open a release with `load`, given its folder and the trusted keys; if keys are trusted, from a private folder."""
    trusted = configured_keys(settings)
    if trusted is None:
        return load(release, None)
    with ExitStack() as stack:
        private = stack.enter_context(
            private_in_place(release)
            if isinstance(settings.releases.location, str)
            else private_copy(release, settings.releases.copies / PRIVATE, trusted)
        )
        try:
            opened = load(private, trusted)
        except EncoderUnavailable:  # names no folder
            raise
        except TaugateError as error:  # name the release, not its copy
            raise type(error)(str(error).replace(str(private), str(release))) from error
        opened.resources.push(stack.pop_all())
        return opened


def configured_keys(settings: Settings) -> TrustedKeys | None:
    """Read the public keys of TAUGATE_TRUSTED_KEYS, None if it is unset."""
    return None if settings.releases.trusted_keys is None else TrustedKeys.load(settings.releases.trusted_keys)


class WatchedCollection:
    """A Watched collection, with the kind of its engine: calls fail at once while the engine is known to be down."""

    def __init__(self, watch: "EngineWatch", record: EngineRecord, collection: Collection, seconds: float) -> None:
        """Start with a collection that responds, whose probes end after so many seconds."""
        # `watch` is told, from any thread, when the collection stops responding, responds again, or is
        # closed.
        self.name, self.dimension, self.kind = collection.name, collection.dimension, record.kind
        self._watch, self._collection, self._seconds = watch, collection, seconds
        self._away: str | None = None
        self._changing = threading.Lock()
        self._closed = threading.Event()

    def propose(self, queries: Float32, count: int, query_filter: Filter, deadline: float) -> Candidates:
        """See Collection.propose."""
        return self._call(lambda: self._collection.propose(queries, count, query_filter, deadline))

    def fetch(self, positions: Positions, deadline: float) -> Rows:
        """See Collection.fetch."""
        return self._call(lambda: self._collection.fetch(positions, deadline))

    def where(self, query_filter: Filter, limit: int, deadline: float, among: Positions | None = None) -> Positions:
        """See Collection.where."""
        return self._call(lambda: self._collection.where(query_filter, limit, deadline, among))

    def find(self, document_id: str, deadline: float) -> Positions:
        """See Collection.find."""
        return self._call(lambda: self._collection.find(document_id, deadline))

    def state(self, deadline: float) -> CollectionState:
        """See Collection.state."""
        return self._call(lambda: self._collection.state(deadline))

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._watch.closed(self)

    def check(self) -> None:
        """Raise EngineUnavailable if the engine is known to be down."""
        if (away := self._away) is not None:
            raise EngineUnavailable(away)

    def _call(self, call: Callable[[], Result]) -> Result:
        """Call the engine; refusals, as for a collection that was dropped or released, count as down as well."""
        self.check()
        try:
            return call()
        except ReleaseError as error:
            self._mark_down(str(error))
            raise EngineUnavailable(str(error)) from error

    def _mark_down(self, reason: str) -> None:
        with self._changing:
            if self._away is not None or self._closed.is_set():
                return
            self._away = reason
        self._watch.changed(self, reason)
        threading.Thread(target=self._probe, name="taugate-engine", daemon=True).start()

    def _probe(self) -> None:
        """Fetch one row again and again until that succeeds."""
        pause = _FIRST_PAUSE
        while not self._closed.wait(pause):
            pause = _PAUSE
            try:
                self._collection.fetch(np.zeros(1, dtype=np.int64), time.monotonic() + self._seconds)
            except ReleaseError:
                continue
            except Exception:  # noqa: BLE001 (whatever the error, the next probe may succeed)
                _log.exception("engine probe failed")
                continue
            with self._changing:
                self._away = None
            self._watch.changed(self, None)
            return


class EngineWatch:
    """The engine of all releases that a process has open: how they reach it, and whether it responds."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Watch the engine of the settings, and report to `taugate_engine_up`."""
        self._settings, self._up = settings.engine, metrics.engine_up
        self._open: set[WatchedCollection] = set()
        self._away: set[WatchedCollection] = set()
        self._show()

    @property
    def access(self) -> EngineAccess:
        """How a release reaches the engine. Connecting raises InputError if the settings name no engine."""
        url = "" if self._settings.url is None else self._settings.url.get_secret_value()
        return EngineAccess(
            connect=lambda kind: engine_at(kind, url, self._settings.token_file),
            seconds=self._settings.seconds,
            watch=self._watch,
        )

    def mark_unreachable(self) -> None:
        """Record that a release could not be opened because the engine is not responding."""
        self._up.set(0)

    def _watch(self, record: EngineRecord, collection: Collection) -> WatchedCollection:
        watched = WatchedCollection(self, record, collection, self._settings.seconds)
        self._open.add(watched)
        self._show()
        return watched

    def changed(self, collection: WatchedCollection, reason: str | None) -> None:
        """Record that a collection stopped responding, with the reason, or responds again, None."""
        fields = {"engine": collection.kind, "collection": collection.name}
        if reason is not None:
            self._away.add(collection)
            _log.warning("engine is not responding", extra={"fields": fields | {"reason": reason}})
        else:
            self._away.discard(collection)
            _log.info("engine is responding again", extra={"fields": fields})
        self._show()

    def closed(self, collection: WatchedCollection) -> None:
        """Forget a collection that was closed."""
        self._open.discard(collection)
        self._away.discard(collection)
        self._show()

    def _show(self) -> None:
        # NaN while no release needs an engine, so that no alert takes it for an outage.
        self._up.set(int(self._away.isdisjoint(self._open)) if self._open else math.nan)


class ReleaseLoader:
    """Loads releases with the settings of the service, one at a time, in a thread of low priority.

    Every method raises ReleaseError or EncoderError if a release is damaged, InputError if the settings do not fit
    it, and EngineUnavailable or EncoderUnavailable if its engine or the endpoint of its encoder is not responding.
    """

    def __init__(self, settings: Settings, metrics: Metrics, load_release: Load | None = None) -> None:
        """Load with `load_release`, by default with that of `trusting`; `metrics` observe the pipelines."""
        self.engine = EngineWatch(settings, metrics)
        self._settings, self._metrics = settings, metrics
        self._load = load_release or trusting(settings, self.engine.access)
        self._thread = ThreadPoolExecutor(1, "taugate-load", lower_priority)

    async def current(self, *, at_start: bool = False) -> Path:
        """Return the folder of the current release; see current_release."""
        return await self._run(lambda: current_release(self._settings, at_start=at_start))

    async def shadow(self) -> Path | None:
        """Return the folder of the configured shadow release, None without one."""
        name = await self._run(lambda: shadow_id(self._settings.releases.directory))
        return None if name is None else self._settings.releases.directory / name

    async def pointers(self) -> tuple[str | None, str | None]:
        """Return the ids of the current release and of the shadow, None for one that is not set."""
        return await self._run(lambda: (promoted_id(self._settings), shadow_id(self._settings.releases.directory)))

    async def load(self, release: Path, threads: int) -> "Release":
        """Load and verify a release, and check its golden queries; it cannot be pruned until it is closed."""
        precision = self._settings.compute.precision
        return await self._run(lambda: _locked(release, lambda: self._load(release, threads, precision)))

    async def open(self, release: Path) -> Opened:
        """Load a release from its folder: a gate if it was calibrated on a run, else a pipeline with warm encoders."""
        if await self._run(lambda: is_of_run(release)):
            gate = await self._run(lambda: _locked(release, lambda: self._open_gate(release)))
            return Opened(gate, gate=gate)
        loaded = await self.load(release, self._settings.compute.encoder_threads)
        try:
            return Opened(loaded, await self._run(lambda: self._start_pipeline(loaded)))
        except BaseException:
            await self._run(loaded.close)
            raise

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False)

    def _open_gate(self, release: Path) -> GateRelease:
        gate = open_trusted(self._settings, release, GateRelease.load)
        self._check_k(gate.manifest)
        return gate

    def _check_k(self, manifest: ReleaseManifest) -> None:
        k, max_k = manifest.policy.k, self._settings.requests.max_k
        if k > max_k:
            raise InputError(f"TAUGATE_MAX_K {max_k}: the release was calibrated at K = {k}; raise it")

    def _start_pipeline(self, release: "Release") -> "SearchPipeline":
        from taugate.retrieval import golden
        from taugate.service.pipeline.search import SearchPipeline, TwoStages

        settings, manifest = self._settings, release.manifest
        self._check_k(manifest)
        pipeline = SearchPipeline(
            release,
            encoder_threads=settings.compute.encoder_threads,
            search_threads=settings.compute.search_threads,
            observe=self._metrics.observe_stage,
            observe_batch=self._metrics.batch_size.observe,
            two_stages=TwoStages(settings.rerank.seconds, self._metrics.observe_answering_stage),
        )
        with ExitStack() as stack:
            stack.callback(pipeline.close)
            if pipeline.single_threaded is not release.retriever:  # the latter was checked by `load`
                golden.check(pipeline.single_threaded, release.golden, manifest.golden_tolerance)
            stack.pop_all()
        return pipeline

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def log_failure(message: str, error: Exception, **fields: str) -> str:
    """Log that a release could not be loaded, with a traceback if that is unexpected; returns the reason to reply."""
    expected = isinstance(error, TaugateError | OSError)
    _log.error(message, exc_info=None if expected else error, extra={"fields": {"reason": str(error), **fields}})
    return str(error) if expected else "see the log for the reason"


def may_pass(error: Exception) -> bool:
    """Return whether the next attempt to load a release may succeed: an engine or an endpoint was not responding."""
    return isinstance(error, EncoderUnavailable | EngineUnavailable)


def _locked(release: Path, load: Callable[[], OpenedT]) -> OpenedT:
    """Load a release, which cannot be pruned until it is closed."""
    with lock_for_reading(release) as lock:
        loaded = load()
        loaded.resources.push(lock.pop_all())
        return loaded
