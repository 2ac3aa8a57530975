"""Several processes that answer on one socket: one which dies is replaced.

Each maps the same index and documents into memory, and keeps its metrics in a folder of all, so that whichever of them
is scraped tells of every one.
"""

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import uvicorn
from prometheus_client.multiprocess import mark_process_dead

from taugate.errors import InputError, ReleaseError, TaugateError
from taugate.service.api.app import create_app
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import SHARED_FOLDER
from taugate.service.process.server import accepting, announce, options
from taugate.service.runtime.logs import configure
from taugate.service.runtime.resources import one_for_blas, settle
from taugate.service.settings import Settings
from taugate.storage.files import staging_folder

_PREFIX = "taugate-workers-"
# One for each type of metric and way of combining gauges (service/metrics.py), as prometheus_client names them.
_KINDS = ("counter", "histogram", "gauge_livesum", "gauge_livemin", "gauge_livemax", "gauge_livemostrecent")
# Four times what prometheus_client begins with. The longest, of counters, has 150 bytes for each series: some 200 API
# keys take 30 kB beside the 15 kB of all else.
_BYTES = 256 << 10


@contextmanager
def worker_folder() -> Iterator[Path]:
    """A folder for the workers of this service; what services left that were killed is cleared away."""
    with staging_folder(Path(tempfile.gettempdir()), _PREFIX) as folder:
        yield folder


def reserve(folder: Path) -> None:
    """Make the files of this process before anything is measured. Raises InputError where there is no room for them."""
    try:
        for kind in _KINDS:
            descriptor = os.open(folder / f"{kind}_{os.getpid()}.db", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, _BYTES)
            finally:
                os.close(descriptor)
    except OSError as error:
        for path in folder.glob(f"*_{os.getpid()}.db"):  # nothing was measured in them, and others need the room
            path.unlink()
        raise InputError(
            f"{folder}: no room for what a worker measures ({error.strerror}); make some, or name another folder with "
            "TMPDIR"
        ) from error


_log = logging.getLogger("taugate.serve")
_ANSWERED = "answered"  # a file of the workers' folder: one of them has been ready
_NONE_CAN_START = 3  # exit status of a worker that could not start before any was ready
_RETRY_SECONDS = 5.0  # after which another worker tries what one could not: a promotion may have mended it by then


def serve_in_workers(settings: Settings, listener: socket.socket) -> None:
    """Run the service in several processes until told to stop. Raises ReleaseError when they cannot start."""
    configure(settings.telemetry.log_level)
    with worker_folder() as folder:
        # A worker reads its settings as this process did, so that what was given by option is put beside the rest.
        os.environ[SHARED_FOLDER] = str(folder)
        settings.export(os.environ)
        announce(settings, listener)
        _Supervisor(listener, folder).run(settings.compute.workers)


class _Supervisor:
    """Replaces workers that die, until it is told to stop. SIGHUP is theirs: each looks for another current release."""

    def __init__(self, listener: socket.socket, folder: Path) -> None:
        self._listener, self._folder = listener, folder
        self._context = multiprocessing.get_context("spawn")  # a fork would copy threads and locks half-way
        self._workers: list[SpawnProcess] = []
        self._stopping = False

    def run(self, workers: int) -> None:
        """Keep so many at work. Raises ReleaseError when they cannot start."""
        for number, handler in ((signal.SIGTERM, self._stop), (signal.SIGINT, self._stop), (signal.SIGHUP, self._tell)):
            signal.signal(number, handler)
        for _ in range(workers):
            self._start()
        failed = False
        while self._workers:
            wait([worker.sentinel for worker in self._workers])
            for worker in [each for each in self._workers if each.exitcode is not None]:
                self._workers.remove(worker)
                # What it measured of the moment, such as its queue, goes with it; its counts stay.
                mark_process_dead(worker.pid, str(self._folder))  # type: ignore[no-untyped-call]
                failed = failed or worker.exitcode == _NONE_CAN_START
                if failed:
                    self._stop()
                elif not self._stopping:
                    fields = {"pid": worker.pid, "status": worker.exitcode}
                    _log.error("a worker died; another one takes its place", extra={"fields": fields})
                    self._start()
        _log.info("stopped")
        if failed:
            raise ReleaseError("no worker could start: what it said is above")

    def _start(self) -> None:
        worker = self._context.Process(target=_work, args=(self._listener,))
        worker.start()
        self._workers.append(worker)
        if self._stopping:  # told so while it was being started
            worker.terminate()

    def _stop(self, *_: object) -> None:
        self._stopping = True
        self._tell(signal.SIGTERM)

    def _tell(self, number: int, *_: object) -> None:
        for worker in self._workers:
            if worker.pid is not None and worker.exitcode is None:
                os.kill(worker.pid, number)


def _work(listener: socket.socket) -> None:
    """One worker, from its start to its end."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a release to compare with
    threading.Thread(target=_end_with_supervisor, name="taugate-supervisor", daemon=True).start()
    settings, folder = Settings(), Path(os.environ[SHARED_FOLDER])  # all of them are in the environment
    configure(settings.telemetry.log_level)
    try:
        reserve(folder)
    except TaugateError as error:
        _give_up(error, folder)
    one_for_blas()
    application = create_app(settings, accept_when_ready=True)
    serving: Serving = application.state.serving

    def ready() -> None:
        (folder / _ANSWERED).touch()
        settle()

    serving.on_ready, serving.on_failure = ready, lambda: _give_up(serving.failure, folder)
    uvicorn.Server(uvicorn.Config(application, **options(settings))).run(accepting(listener))


def _end_with_supervisor() -> None:
    """Nobody would end or replace a worker whose supervisor was killed, and it would keep the port from the next."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _give_up(failure: Exception | None, folder: Path) -> None:
    """End. While no worker has been ready the service ends as well; else the others go on."""
    traceback = None if isinstance(failure, TaugateError) else failure
    _log.critical("a worker could not start", exc_info=traceback, extra={"fields": {"reason": str(failure)}})
    logging.shutdown()
    if not (folder / _ANSWERED).exists():
        os._exit(_NONE_CAN_START)
    time.sleep(_RETRY_SECONDS)
    os._exit(1)
