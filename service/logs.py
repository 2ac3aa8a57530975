"""One JSON object a line on stderr, for every logger of the process. No query text and no document text."""

import contextlib
import logging
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

_SECONDS = 0.1  # nobody who reads along notices


class JsonFormatter(logging.Formatter):
    """A record as JSON: time, level, logger, message, then its `fields`, then a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record on one line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(entry, default=str).decode()


class BufferedHandler(logging.Handler):
    """Writes lines together, ten times a second, and at once from WARNING on.

    A line for every request, written by itself, has the event loop let go of the interpreter each time, which a busy
    process gives back late. kill -9 takes the last tenth of a second with it.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: list[str] = []
        threading.Thread(target=self._keep_flushing, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line, or write it with those kept before."""
        self._lines.append(self.format(record))
        if record.levelno >= logging.WARNING:
            self.flush()

    def flush(self) -> None:
        """Write what is kept."""
        with self.lock or contextlib.nullcontext():
            lines, self._lines = self._lines, []
            if lines:
                with contextlib.suppress(OSError, ValueError):  # nobody reads any more: no reason not to answer
                    self._stream.write("\n".join(lines) + "\n")
                    self._stream.flush()

    def _keep_flushing(self) -> None:
        while True:
            time.sleep(_SECONDS)
            self.flush()


def configure(level: str) -> None:
    """Send everything to stderr as JSON, uvicorn's own lines included."""
    handler = BufferedHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # No line tells of its code, thread or process, so that none is looked up (logging, "Optimization").
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
