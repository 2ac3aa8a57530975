"""Several worker processes that serve on one socket; one that dies is replaced.

Each maps the same index and documents into memory. They keep their metrics in one folder, so that whichever of them is
scraped shows the metrics of all.
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
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead

from taugate.errors import InputError, ReleaseError, TaugateError
from taugate.service.api.app import create_app
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import SHARED_FOLDER
from taugate.service.process.server import duplicate_listener, log_listening, make_server
from taugate.service.runtime.logs import configure_logging
from taugate.service.runtime.resources import freeze_objects, limit_blas_threads
from taugate.service.settings import Settings
from taugate.storage.folders import staging_folder

_log = logging.getLogger("taugate.serve")
_FOLDER_PREFIX = "taugate-workers-"
# One for each type of metric and way of combining gauges (service/metrics.py), as prometheus_client names them.
_METRIC_FILES = ("counter", "histogram", "gauge_livesum", "gauge_livemin", "gauge_livemax", "gauge_livemostrecent")
# Four times what prometheus_client begins with. The longest, of counters, has 150 bytes for each series: some 200 API
# keys take 30 kB beside the 15 kB of all else.
_METRIC_FILE_BYTES = 256 << 10
_READY_FILE = "answered"  # in the workers' folder, once one of them has been ready
_NONE_CAN_START = 3  # exit status of a worker that could not start before any was ready
# To a worker: stop without a drain period. SIGINT would not do, because a terminal sends it to workers as well, and a
# second one ends a process in the middle of its requests.
_STOP_NOW = signal.SIGUSR1
_RETRY_SECONDS = 5.0  # after which another worker tries what one could not: a promotion may have fixed it by then


@contextmanager
def worker_folder() -> Iterator[Path]:
    """Make a temporary folder for the workers of this service, and remove those of services that were killed."""
    with staging_folder(Path(tempfile.gettempdir()), _FOLDER_PREFIX) as folder:
        yield folder


def reserve_metric_files(folder: Path) -> None:
    """Allocate the metric files of this process: a disk that fills up later would kill it, as they are mapped.

    Args:
        folder: Of the workers.

    Raises:
        InputError: Where there is no room for them.
    """
    try:
        for kind in _METRIC_FILES:
            descriptor = os.open(folder / f"{kind}_{os.getpid()}.db", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, _METRIC_FILE_BYTES)
            finally:
                os.close(descriptor)
    except OSError as error:
        for path in folder.glob(f"*_{os.getpid()}.db"):  # nothing was measured in them, and others need the room
            path.unlink()
        raise InputError(
            f"{folder}: no space for the workers' metrics ({error.strerror}); free some, or name another folder with "
            "TMPDIR"
        ) from error


def serve_in_workers(settings: Settings, listener: socket.socket) -> None:
    """Run the service in several processes until it is told to stop.

    Args:
        settings: Of the service.
        listener: A listening socket.

    Raises:
        ReleaseError: Where no worker can start.
    """
    configure_logging(settings.telemetry.log_level)
    with worker_folder() as folder:
        # Workers read their settings from the environment, so that those given by options have to be there as well.
        os.environ[SHARED_FOLDER] = str(folder)
        settings.export(os.environ)
        log_listening(settings, listener)
        _Supervisor(listener, folder).run(settings.compute.workers)


class _Supervisor:
    """Starts workers and replaces those that die, until it is told to stop.

    It passes SIGHUP on: each worker looks whether another release is current. SIGTERM lets the workers drain
    (service/process/draining.py), SIGINT does not. A worker that is told to stop takes a token when it stops accepting;
    the one that takes the last token is the last to accept, and empties the queue of the listening socket.
    """

    def __init__(self, listener: socket.socket, folder: Path) -> None:
        self._listener, self._folder = listener, folder
        self._context = multiprocessing.get_context("spawn")  # a fork would copy threads and locks half-way
        self._workers: list[SpawnProcess] = []
        self._stopping = False
        self._tokens, self._tokens_sent = self._context.Pipe(duplex=False)

    def run(self, workers: int) -> None:
        """Keep so many workers running until all are told to stop.

        Raises:
            ReleaseError: Where none can start.
        """
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop_now)
        signal.signal(signal.SIGHUP, self._signal_workers)
        for _ in range(workers):
            self._start()
        failed = False
        while self._workers:
            wait([worker.sentinel for worker in self._workers])
            if self._stopping:  # while this process has it open, the kernel makes connections that nobody accepts
                self._listener.close()
            for worker in [each for each in self._workers if each.exitcode is not None]:
                self._workers.remove(worker)
                # What it measured of the moment, such as its queue, goes with it; its counts stay.
                mark_process_dead(worker.pid, str(self._folder))  # type: ignore[no-untyped-call]
                failed = failed or worker.exitcode == _NONE_CAN_START
                if failed:
                    self._stop_now()
                elif not self._stopping:
                    fields = {"pid": worker.pid, "status": worker.exitcode}
                    _log.error("a worker died; another one takes its place", extra={"fields": fields})
                    self._start()
        _log.info("stopped")
        if failed:
            raise ReleaseError("no worker could start; the messages above say why")

    def _start(self) -> None:
        worker = self._context.Process(target=_run_worker, args=(self._listener, self._tokens))
        worker.start()
        self._workers.append(worker)
        if self._stopping:  # told so while it was being started
            worker.terminate()

    def _stop(self, *_: object) -> None:
        if not self._stopping:
            self._stopping = True
            for _worker in self._workers:
                self._tokens_sent.send(None)
        self._signal_workers(signal.SIGTERM)

    def _stop_now(self, *_: object) -> None:
        self._stopping = True
        self._signal_workers(_STOP_NOW)

    def _signal_workers(self, number: int, *_: object) -> None:
        for worker in self._workers:
            if worker.pid is not None and worker.exitcode is None:
                os.kill(worker.pid, number)


def _run_worker(listener: socket.socket, tokens: "Connection[None, None]") -> None:
    """Run one worker, from its start to its end."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a release to compare with
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the supervisor gets it as well, and passes it on
    threading.Thread(target=_stop_with_supervisor, name="taugate-supervisor", daemon=True).start()
    settings, folder = Settings(), Path(os.environ[SHARED_FOLDER])  # serve_in_workers has set them all
    configure_logging(settings.telemetry.log_level)
    try:
        reserve_metric_files(folder)
    except TaugateError as error:
        _give_up(error, folder)
    limit_blas_threads()
    application = create_app(settings, accept_when_ready=True)
    serving: Serving = application.state.serving

    def ready() -> None:
        (folder / _READY_FILE).touch()
        freeze_objects()

    serving.on_ready, serving.on_failure = ready, lambda: _give_up(serving.failure, folder)
    server = make_server(application, settings, lambda: _is_last(tokens))
    signal.signal(_STOP_NOW, server.stop_now)
    server.run(duplicate_listener(listener))


def _is_last(tokens: "Connection[None, None]") -> bool:
    """Take a token, and tell whether it was the last. Without any, this worker alone stops, and others accept."""
    if not tokens.poll():
        return False
    tokens.recv()  # there is one for each worker, and none takes two
    return not tokens.poll()


def _stop_with_supervisor() -> None:
    """Stop when the supervisor was killed: nobody would stop this worker, and it would keep the port from the next."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), _STOP_NOW)


def _give_up(failure: Exception | None, folder: Path) -> None:
    """End this worker, and the service as well while no worker has been ready; else the others go on."""
    traceback = None if isinstance(failure, TaugateError) else failure
    _log.critical("a worker could not start", exc_info=traceback, extra={"fields": {"reason": str(failure)}})
    logging.shutdown()
    if not (folder / _READY_FILE).exists():
        os._exit(_NONE_CAN_START)
    time.sleep(_RETRY_SECONDS)
    os._exit(1)
