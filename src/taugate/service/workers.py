"""Serving in several worker processes on one socket; a worker that dies is replaced.

All workers map the same index and documents into memory. They store their metrics in one folder, so that any of them
can show the metrics of all.
"""

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import cast

from prometheus_client.multiprocess import mark_process_dead

from taugate.errors import ReleaseError, TaugateError
from taugate.service.app import create_app
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import SHARED_FOLDER
from taugate.service.runtime.logs import configure_logging
from taugate.service.runtime.resources import freeze_objects, limit_blas_threads, reserve_metric_files
from taugate.service.server import DrainingServer, duplicate_listener, log_listening
from taugate.service.settings import Settings
from taugate.storage.folders import staging_folder

_log = logging.getLogger(__name__)
_FOLDER_PREFIX = "taugate-workers-"
# Tells a worker to stop without a drain period. SIGINT does not serve for this: a terminal also sends it to workers,
# and a second SIGINT ends a process in the middle of its requests.
_STOP_NOW = signal.SIGUSR1
_RETRY_SECONDS = 5.0  # before a worker that failed to start is replaced; a promotion may have fixed the cause by then
_MAX_EARLY_DEATHS = 3  # in a row, of a worker and its replacements before they are ready
# Messages of a worker to its supervisor: READY, or the reason why it failed to start.
_READY = ""


def serve_in_workers(settings: Settings, listener: socket.socket) -> None:
    """Run the service in several processes until it is told to stop."""
    configure_logging(settings.telemetry.log_level)
    with staging_folder(Path(tempfile.gettempdir()), _FOLDER_PREFIX) as folder:
        log_listening(settings, listener)
        # Workers read their settings from the environment, so those from command-line options must be there as well.
        os.environ[SHARED_FOLDER] = str(folder)
        settings.export(os.environ)
        _Supervisor(listener, folder).run(settings.compute.workers)


@dataclass
class _Worker:
    """A worker process."""

    process: SpawnProcess
    messages: "Connection[str, str]"  # receives `_READY` once the worker is ready, or the reason why it failed to start
    early_deaths: int  # number of its predecessors, in a row, that died before they were ready
    ready: bool = False  # whether the worker has been ready
    failure: str | None = None  # why the worker failed to start, if it said so

    def read_messages(self) -> None:
        """Update `ready` and `failure`."""
        with suppress(EOFError, OSError):  # a dead worker has closed its end
            while self.messages.poll():
                message = self.messages.recv()
                if message == _READY:
                    self.ready = True
                else:
                    self.failure = message

    def exit_reason(self) -> str:
        """Describe how the process ended, and why if the worker said so."""
        status = self.process.exitcode or 0
        ending = f"exit status {status}"
        if status < 0:
            with suppress(ValueError):
                ending = f"killed by {signal.Signals(-status).name}"
        if status == -signal.SIGKILL:
            ending += ", often for lack of memory: lower TAUGATE_WORKERS, or allow more"
        return ending if self.failure is None else f"{ending}: {self.failure}"


class _Supervisor:
    """Starts workers and replaces those that die, until it is told to stop.

    SIGHUP is passed on, and makes each worker check for another current release. SIGTERM makes the workers drain
    (service/server.py), SIGINT does not. A worker that is told to stop takes a token when it stops accepting
    connections; the worker that takes the last token is the last to accept, and empties the queue of the listener.
    """

    def __init__(self, listener: socket.socket, folder: Path) -> None:
        self._listener, self._folder = listener, folder
        self._context = multiprocessing.get_context("spawn")  # a fork would copy threads and locks in any state
        self._workers: list[_Worker] = []
        self._has_served = self._stopping = False
        self._failure: str | None = None
        self._tokens, self._tokens_sent = self._context.Pipe(duplex=False)

    def run(self, workers: int) -> None:
        """Run a number of workers until all are told to stop."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop_now)
        signal.signal(signal.SIGHUP, self._signal_workers)
        for _ in range(workers):
            self._start()
        while self._workers:
            wait([worker.process.sentinel for worker in self._workers])
            if self._stopping:  # while it is open here, the kernel establishes connections that no worker accepts
                self._listener.close()
            for worker in self._workers:
                worker.read_messages()
                self._has_served = self._has_served or worker.ready
            for worker in [worker for worker in self._workers if worker.process.exitcode is not None]:
                self._workers.remove(worker)
                # Removes its gauges, such as the queue depth; its counters remain.
                mark_process_dead(worker.process.pid, str(self._folder))  # type: ignore[no-untyped-call]
                self._after_death(worker)
                worker.messages.close()
        _log.info("stopped")
        if self._failure is not None:
            raise ReleaseError(self._failure)

    def _after_death(self, worker: _Worker) -> None:
        """Replace a worker, or stop the service if that is of no use."""
        if worker.failure is not None and not self._has_served:
            self._fail(f"no worker could start: {worker.failure}")
        if self._stopping:
            return
        # A worker that says why it failed is retried for as long as others serve: the cause may be mended meanwhile.
        retried = worker.failure is not None and any(other.ready for other in self._workers)
        early_deaths = 0 if worker.ready or retried else worker.early_deaths + 1
        if early_deaths == _MAX_EARLY_DEATHS:
            self._fail(f"a worker died {early_deaths} times before it was ready ({worker.exit_reason()})")
            return
        fields = {"pid": worker.process.pid, "status": worker.process.exitcode}
        _log.error("worker died; starting another", extra={"fields": fields})
        self._start(early_deaths, 0.0 if worker.failure is None else _RETRY_SECONDS)

    def _start(self, early_deaths: int = 0, delay: float = 0.0) -> None:
        messages, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_run_worker, args=(self._listener, self._tokens, sender, delay))
        process.start()
        sender.close()
        self._workers.append(_Worker(process, cast("Connection[str, str]", messages), early_deaths))
        if self._stopping:  # a signal came while the worker was being started
            process.terminate()

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._stop_now()

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
        for process in (worker.process for worker in self._workers):
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, number)


def _run_worker(
    listener: socket.socket, tokens: "Connection[None, None]", supervisor: "Connection[str, str]", delay: float = 0.0
) -> None:
    """Run a worker from start to end, after a delay in seconds."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until a release is loaded
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal also sends it to the supervisor, which passes it on
    threading.Thread(target=_stop_with_supervisor, name="taugate-supervisor", daemon=True).start()
    time.sleep(delay)
    settings = Settings()  # from the environment that serve_in_workers set
    configure_logging(settings.telemetry.log_level)
    try:
        reserve_metric_files(Path(os.environ[SHARED_FOLDER]))
    except TaugateError as error:
        _give_up(error, supervisor)
    limit_blas_threads()
    application = create_app(settings, accept_when_ready=True)
    serving: Serving = application.state.serving

    def ready() -> None:
        with suppress(OSError):  # the supervisor was killed
            supervisor.send(_READY)
        freeze_objects()

    serving.on_ready, serving.on_failure = ready, lambda: _give_up(serving.failure, supervisor)
    # A terminal also sends SIGINT to the supervisor, which passes it on. Received after that, it would count as a
    # second one, which ends a process in the middle of its requests.
    server = DrainingServer(application, settings, lambda: _is_last(tokens), ignores_interrupts=True)
    # SIGTERM too, because uvicorn raises it again at the end, and its default would kill the process before the last
    # lines of the log are written.
    for stop in (signal.SIGTERM, _STOP_NOW):
        signal.signal(stop, server.stop_now)
    server.run(duplicate_listener(listener))


def _is_last(tokens: "Connection[None, None]") -> bool:
    """Take a token, and return whether it was the last. Without tokens, only this worker stops, so others accept."""
    if not tokens.poll():
        return False
    tokens.recv()  # there is one for each worker, and none takes two
    return not tokens.poll()


def _stop_with_supervisor() -> None:
    """Stop if the supervisor is killed: nothing else would stop this worker, and it would keep the port in use."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), _STOP_NOW)


def _give_up(failure: Exception | None, supervisor: "Connection[str, str]") -> None:
    """Tell the supervisor why this worker fails to start, and end it."""
    traceback = None if isinstance(failure, TaugateError) else failure
    _log.critical("worker failed to start", exc_info=traceback, extra={"fields": {"reason": str(failure)}})
    with suppress(OSError):  # the supervisor was killed
        supervisor.send(str(failure) or type(failure).__name__)
    logging.shutdown()
    os._exit(1)
