"""Finds and loads releases, from the place and with the trusted keys of the settings, if they fit into memory.

Whether a release fits into the memory of this process, asked before it is loaded. Every search reads the whole index.
If the control group allows less, the system maps it in again and again: the process is not killed, but answers nothing,
and no message says why.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from taugate.errors import EncoderUnavailable, EngineUnavailable, InputError, ReleaseError, TaugateError
from taugate.registry.catalog import current_id, find, shadow_id
from taugate.registry.download import PRIVATE, private_copy, private_in_place, remote_current_id
from taugate.registry.history import lock_for_reading
from taugate.registry.transfer import update_copy
from taugate.release.encoder import DATA, MODEL, WEIGHTS
from taugate.release.layout import CURRENT, ENCODER_FOLDER, FLOAT32_FOLDER, LEXICAL, METADATA, QUERY_FOLDER
from taugate.release.manifest import ReleaseManifest
from taugate.release.names import INDEX
from taugate.release.verify import TrustedKeys, is_of_run
from taugate.retrieval.encoder.encoder import RequestedPrecision
from taugate.retrieval.encoder.endpoint_access import EndpointAccess
from taugate.retrieval.engines.connect import EngineAccess
from taugate.retrieval.hardware import memory_limit
from taugate.service.lifecycle.active import GateRelease, Opened
from taugate.service.lifecycle.engine import EngineWatch
from taugate.service.metrics import Metrics
from taugate.service.runtime.resources import lower_priority
from taugate.service.settings import Settings
from taugate.storage.object_store import Store

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.reader import Release
    from taugate.service.pipeline.search import SearchPipeline

_log = logging.getLogger(__name__)

# The process with all-MiniLM-L6-v2 in int8, 320 MB, less its weights (docs/operations.md, "Capacity").
_PROCESS_BYTES = 300 << 20
_READ_WHOLE = {INDEX, LEXICAL, METADATA, MODEL, DATA, WEIGHTS}  # other files are mapped, and read in part
_TIGHT = 0.8  # share of the limit; the rest is for replies, the cache, and a release that replaces this one
_WAY_OUT = (
    "raise the limit (in the chart, resources.limits.memory), or calibrate with a smaller index, such as "
    'index = "flat-int8"'
)

# Loads a release from its folder, with a number of encoder threads and an encoder of a precision.
Load = Callable[[Path, int, RequestedPrecision], "Release"]


def bytes_held(release: Path) -> int:
    """Return the bytes of memory that a release takes in a process that searches it, from the sizes of its files."""
    unused = {FLOAT32_FOLDER, ENCODER_FOLDER if (release / QUERY_FOLDER).is_dir() else QUERY_FOLDER}
    held = [path for path in release.rglob("*") if path.name in _READ_WHOLE and path.parent.name not in unused]
    return sum(path.stat().st_size for path in held)


def check_memory(*releases: Path) -> str | None:
    """Return a warning, also logged, if releases in one process leave little of the memory that is allowed.

    Raises:
        InputError: If they need more than the control groups allow.
    """
    limit = memory_limit()
    needed = _PROCESS_BYTES + sum(map(bytes_held, releases))
    if limit is None or needed <= _TIGHT * limit:
        return None
    names = " with the shadow ".join(release.name for release in releases)
    numbers = f"{names} needs {needed / 2**30:.2f} GiB of memory, the control group allows {limit / 2**30:.2f} GiB"
    if needed > limit:
        raise InputError(f"{numbers}: {_WAY_OUT}")
    _log.warning("%s: little is left for replies and for the next release; %s", numbers, _WAY_OUT)
    return f"{numbers}: {_WAY_OUT}"


def current_release(settings: Settings, *, at_start: bool = False) -> Path:
    """Return the folder of the current release; if releases are at a URL, update the local copy first.

    `at_start`, damage in the copy is repaired, and the copy is used as it is if the store is not responding or its
    release does not verify: an older release is better than none.

    Raises:
        ReleaseError: If there is no current release, or it cannot be read or does not verify.
        InputError: If the settings do not fit the store or the keys.
    """
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
    """Return the id of the release that was promoted last, which may not have been copied yet; None if none was.

    Raises:
        ReleaseError: If the pointer cannot be read.
        InputError: If the settings do not fit the store.
    """
    if isinstance(settings.releases.location, str):
        return remote_current_id(Store(settings.releases.location))
    return current_id(settings.releases.directory)


def trusting(settings: Settings, engine: EngineAccess) -> Load:
    """Return a `Load` that refuses releases without a signature by a trusted key.

    The keys are read at each load, because they may have changed. If keys are trusted, a release is loaded from a
    folder that only this user can write to.
    """
    endpoint = endpoint_access(settings)

    def load_trusted(release: Path, threads: int, precision: RequestedPrecision) -> "Release":
        from taugate.retrieval.reader import load
        from taugate.retrieval.rerank.endpoint import endpoint_at
        from taugate.retrieval.rerank.reranker import TextScorer

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
    """Read the public keys of TAUGATE_TRUSTED_KEYS, None if it is unset.

    Raises:
        InputError: If there are no keys at that path.
    """
    return None if settings.releases.trusted_keys is None else TrustedKeys.load(settings.releases.trusted_keys)


Result = TypeVar("Result")


class ReleaseLoader:
    """Loads releases with the settings of the service, one at a time, in a thread of low priority.

    Every method raises ReleaseError or EncoderError if a release is damaged, InputError if the settings do not fit it,
    and EngineUnavailable or EncoderUnavailable if its engine or the endpoint of its encoder is not responding.
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
