"""uvicorn's supervisor of worker processes, for workers that share a release and a folder of metrics."""

import logging
import os
import signal
import socket
import time
from pathlib import Path

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from service.metrics import SHARED_FOLDER
from service.worker_folder import forget

_log = logging.getLogger("taugate.serve")
_RETRY_SECONDS = 5.0  # after which one that could not start is tried again: a promotion may have mended it by then


class Supervisor(Multiprocess):
    """Takes what a dead worker measured of the moment, such as its queue, out of the metrics; its counts stay.

    SIGHUP is for the workers, each of which looks for another current release: none is restarted for it. Where a worker
    cannot start, those that answer go on, and it is tried again; where none is left, nothing would come of that.
    failed: whether it ended so.
    """

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        self.failed = False
        self._retry_at: dict[int, float] = {}  # of pids that could not start

    def handle_hup(self) -> None:
        """Pass it on."""
        for process in self.processes:
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, signal.SIGHUP)

    def keep_subprocess_alive(self) -> None:
        """Replace who died, and try those again that could not start."""
        for place, process in enumerate(self.processes):
            pid = process.pid or 0
            if pid not in self._retry_at:
                if process.is_alive(timeout=self.config.timeout_worker_healthcheck):
                    continue
                self._bury(process)
                if process.exitcode == STARTUP_FAILURE:
                    forget(Path(os.environ[SHARED_FOLDER]), pid)
                    if self._nobody_answers():
                        return
                    _log.error("a worker could not start; it is tried again", extra={"fields": {"pid": pid}})
                    self._retry_at[pid] = time.monotonic() + _RETRY_SECONDS
            if time.monotonic() >= self._retry_at.get(pid, 0.0):
                self._retry_at.pop(pid, None)
                self.processes[place] = Process(self.config, self.sockets)
                self.processes[place].start()

    def _bury(self, process: Process) -> None:
        process.kill()  # where it hangs
        process.join()
        mark_process_dead(process.pid, os.environ[SHARED_FOLDER])  # type: ignore[no-untyped-call]

    def _nobody_answers(self) -> bool:
        if all(process.exitcode is not None for process in self.processes):
            self.failed = True
            self.should_exit.set()
        return self.failed
