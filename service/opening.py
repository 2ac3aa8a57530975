"""From a releases directory to an engine that has shown that it answers: all that is slow, off the event loop."""

from collections.abc import Callable
from pathlib import Path

from retrieval.errors import InputError
from retrieval.release import golden
from retrieval.release.encoders import AskedPrecision
from retrieval.release.reader import Release, load
from retrieval.threads import give_way
from service.engine import Engine, Threads
from service.metrics import Metrics
from service.settings import Settings

Load = Callable[[Path, int, AskedPrecision], Release]


class Opener:
    """Opens releases with the settings of the service; load_release: as retrieval.release.reader.load does."""

    def __init__(self, settings: Settings, metrics: Metrics, load_release: Load = load) -> None:
        self._settings, self._metrics, self._load = settings, metrics, load_release
        self._threads = Threads(settings.encoder_threads, settings.search_threads)

    def open(self, release: Path) -> Engine:
        """Verified, loaded, asked its golden queries by every encoder that will answer, and so warm.

        Raises ReleaseError or EncoderError when it is not as it was written, InputError when the settings do not fit.
        """
        give_way()  # whoever is answered by another release meanwhile goes first
        settings = self._settings
        loaded = self._load(release, self._threads.encoder, settings.precision)
        k = loaded.manifest.policy.k
        if k > settings.max_k:
            raise InputError(f"TAUGATE_MAX_K {settings.max_k}: the release was calibrated at K = {k}; raise it")
        engine = Engine(loaded, self._threads, self._metrics.observe_stage, self._metrics.observe_batch)
        try:
            if engine.single is not loaded.retriever:  # which `load` has asked
                golden.check(engine.single, loaded.golden, loaded.manifest.golden_tolerance)
        except BaseException:
            engine.close()
            raise
        return engine
