"""Several processes that answer on one socket, under uvicorn's supervisor: one which dies is replaced.

Each maps the same index and documents into memory, and keeps its metrics in a folder of all, so that whichever of them
is scraped tells of every one.
"""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE

from retrieval.errors import ReleaseError, TaugateError
from retrieval.threads import one_for_blas
from service.app import create_app
from service.logs import configure
from service.memory import settle
from service.metrics import SHARED_FOLDER
from service.server import announce, options
from service.serving import Serving
from service.settings import Settings
from service.supervisor import Supervisor
from service.worker_folder import reserve, worker_folder

_log = logging.getLogger("taugate.serve")


def serve_in_workers(settings: Settings, listener: socket.socket) -> None:
    """Run the service in several processes until told to stop. Raises ReleaseError when they cannot start."""
    configure(settings.log_level)
    with worker_folder() as folder:
        # A worker reads its settings as this process did, so that what was given by option is put beside the rest.
        os.environ |= {SHARED_FOLDER: str(folder), **settings.as_environment()}
        config = uvicorn.Config("service.workers:app", factory=True, workers=settings.workers, **options(settings))
        supervisor = Supervisor(config, [listener])
        announce(settings, listener)
        supervisor.run()
        if supervisor.failed:
            raise ReleaseError("no worker could start: what it said is above")


def app() -> FastAPI:
    """The application of one worker."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a release to compare with
    threading.Thread(target=_end_with_supervisor, name="taugate-supervisor", daemon=True).start()
    settings = Settings()  # all of them are in the environment
    configure(settings.log_level)
    try:
        if SHARED_FOLDER in os.environ:  # not where another supervisor than ours starts it
            reserve(Path(os.environ[SHARED_FOLDER]))
    except TaugateError as error:
        _give_up(error)
    one_for_blas()
    application = create_app(settings, accept_when_ready=True)
    serving: Serving = application.state.serving
    serving.on_ready = settle
    serving.on_failure = lambda: _give_up(serving.failure)
    return application


def _end_with_supervisor() -> None:
    """Nobody would end or replace a worker whose supervisor was killed, and it would keep the port from the next."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _give_up(failure: Exception | None) -> None:
    """The supervisor is told by the exit status that it could not start."""
    if isinstance(failure, TaugateError):
        sys.stderr.write(f"taugate: {failure}\n")
    else:
        _log.critical("the release could not be loaded", exc_info=failure)
    logging.shutdown()
    os._exit(STARTUP_FAILURE)
