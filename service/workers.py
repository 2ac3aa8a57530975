"""Several processes that answer on one socket, under uvicorn's supervisor: one which dies is replaced.

Each maps the same index and documents into memory, and keeps its metrics in a folder of all, so that whichever of them
is scraped tells of every one.
"""

import logging
import os
import signal
import socket
import sys
import tempfile

import uvicorn
from fastapi import FastAPI
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from retrieval.errors import ReleaseError, TaugateError
from retrieval.threads import one_for_blas
from service.app import create_app
from service.logs import configure
from service.memory import settle
from service.metrics import SHARED_FOLDER
from service.server import announce, options
from service.serving import Serving
from service.settings import Settings

_log = logging.getLogger("taugate.serve")


def serve_in_workers(settings: Settings, listener: socket.socket) -> None:
    """Run the service in several processes until told to stop. Raises ReleaseError when they cannot start."""
    configure(settings.log_level)
    with tempfile.TemporaryDirectory(prefix="taugate-metrics-") as folder:
        # A worker reads its settings as this process did, so that what was given by option is put beside the rest.
        os.environ |= {SHARED_FOLDER: folder, **settings.as_environment()}
        config = uvicorn.Config("service.workers:app", factory=True, workers=settings.workers, **options(settings))
        supervisor = _Supervisor(config, [listener])
        announce(settings, listener)
        supervisor.run()
        if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
            raise ReleaseError("no worker could start: what it said is above")


def app() -> FastAPI:
    """The application of one worker."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a release to compare with
    settings = Settings()  # all of them are in the environment
    configure(settings.log_level)
    one_for_blas()
    application = create_app(settings, accept_when_ready=True)
    serving: Serving = application.state.serving
    serving.on_ready = settle
    serving.on_failure = lambda: _give_up(serving.failure)
    return application


def _give_up(failure: Exception | None) -> None:
    """Every other worker would fail likewise: the supervisor is told by the exit status not to try again."""
    if isinstance(failure, TaugateError):
        sys.stderr.write(f"taugate: {failure}\n")
    else:
        _log.critical("the release could not be loaded", exc_info=failure)
    logging.shutdown()
    os._exit(STARTUP_FAILURE)


class _Supervisor(Multiprocess):
    """Takes what a dead worker measured of the moment, such as its queue, out of the metrics; its counts stay.

    SIGHUP is for the workers, each of which looks for another current release: none is restarted for it.
    """

    def handle_hup(self) -> None:
        for process in self.processes:
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, signal.SIGHUP)

    def keep_subprocess_alive(self) -> None:
        before = {process.pid for process in self.processes}
        super().keep_subprocess_alive()
        for pid in before - {process.pid for process in self.processes}:
            if pid is not None:
                mark_process_dead(pid, os.environ[SHARED_FOLDER])  # type: ignore[no-untyped-call]
