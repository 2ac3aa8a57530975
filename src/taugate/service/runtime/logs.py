"""Logging as JSON lines on stderr, for all loggers of the process, without texts of queries or documents.

On a terminal, the lines are for people.

Records are queued as lines, which a separate thread writes. If stderr is not read, that thread blocks, the queue fills
up, and further lines are dropped and counted: no request, probe or signal ever waits for the log.
"""

import contextlib
import logging
import os
import queue
import select
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from typing import Any

import orjson

_WRITE_INTERVAL_SECONDS = 0.1  # too short for a reader to notice
_MAX_QUEUED_LINES = 4096  # 0.7 s of cached replies at their fastest (docs/benchmarks/serving.md), some 1 MB
_FLUSH_SECONDS = 1.0  # for the last lines, when the process ends; an active reader takes milliseconds
# Writes of up to this size are not interleaved with those of other workers to the same pipe (POSIX, write()).
_MAX_WRITE_BYTES = getattr(select, "PIPE_BUF", 512)
_formatter = logging.Formatter()


def json_line(record: logging.LogRecord) -> bytes:
    """Format a record as a JSON line: time, level, logger, message, the keys of `extra["fields"]`, and a traceback."""
    entry: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    entry |= getattr(record, "fields", {})
    if record.exc_info:
        entry["traceback"] = _formatter.formatException(record.exc_info)
    return orjson.dumps(entry, default=str, option=orjson.OPT_APPEND_NEWLINE)


def text_line(record: logging.LogRecord) -> bytes:
    """Format a record as a line for people: local time, level, message, fields as JSON, and a traceback."""
    fields = getattr(record, "fields", None)
    message = record.getMessage().replace("\n", " ")
    words = f"{datetime.fromtimestamp(record.created):%H:%M:%S} {record.levelname.lower()}: {message}"
    line = words.encode() if fields is None else words.encode() + b" " + orjson.dumps(fields, default=str)
    return line + (f"\n{_formatter.formatException(record.exc_info)}\n".encode() if record.exc_info else b"\n")


class LineLogHandler(QueueHandler):
    """Queues records as lines, and drops them while the queue is full; `on_drop` is called for each dropped line.

    The queue is a SimpleQueue whose length is checked here: queue.Queue has a limit, but its locks are Python code that
    every request would run.
    """

    def __init__(self, descriptor: int) -> None:
        """Start the thread that writes to an open file descriptor."""
        lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        super().__init__(lines)
        self.on_drop: Callable[[], object] = lambda: None
        self._lines = lines
        self._format = text_line if os.isatty(descriptor) else json_line
        self._writer = _LineWriter(lines, descriptor)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record. Records of level WARNING and above are written at once."""
        if self._lines.qsize() >= _MAX_QUEUED_LINES:
            self.on_drop()
            return
        super().emit(record)
        if record.levelno >= logging.WARNING:
            self._writer.hurry.set()

    def prepare(self, record: logging.LogRecord) -> bytes:
        """Convert a record to the line that is queued."""
        return self._format(record)

    def close(self) -> None:
        """Wait until the queued lines are written, but at most a second, because stderr may not be read."""
        self._writer.stop()
        super().close()


class _LineWriter(QueueListener):
    """Writes lines in batches ten times a second, and at once if `hurry` is set.

    A thread that woke up for each line would take the interpreter lock from the event loop each time, which would get
    it back late in a busy process. kill -9 loses the last tenth of a second.
    """

    def __init__(self, lines: "queue.SimpleQueue[bytes | None]", descriptor: int) -> None:
        super().__init__(lines)
        self.hurry = threading.Event()
        self._lines, self._descriptor = lines, descriptor
        self._ended = threading.Event()

    def dequeue(self, block: bool) -> bytes | None:  # type: ignore[override]  # `prepare` has converted records to lines
        """Return the next line, None at the end."""
        line = self._lines.get(block)
        if line is None:
            self._ended.set()
        return line

    def handle(self, record: bytes) -> None:  # type: ignore[override]  # as above
        """Write a line, together with all that follow within a tenth of a second."""
        self.hurry.wait(_WRITE_INTERVAL_SECONDS)
        self.hurry.clear()
        with contextlib.suppress(OSError):  # the reader of stderr has gone, which must not stop the service
            for part in _batches(record, self._lines):
                _write_all(self._descriptor, part)

    def stop(self) -> None:
        """Write the queued lines, and return after at most a second."""
        self.enqueue_sentinel()
        self.hurry.set()
        self._ended.wait(_FLUSH_SECONDS)


def _batches(first: bytes, lines: "queue.SimpleQueue[bytes | None]") -> Iterator[bytes]:
    """Join as many whole lines as fit into one write, until the queue is empty."""
    part = first
    for _ in range(lines.qsize()):
        line = lines.get_nowait()
        if line is None:
            lines.put(None)  # for `dequeue`
            break
        if len(part) + len(line) > _MAX_WRITE_BYTES:
            yield part
            part = b""
        part += line
    yield part


def _write_all(descriptor: int, part: bytes) -> None:
    """Write all bytes; not through sys.stderr, whose lock would keep the interpreter from exiting while this blocks."""
    while part:
        try:
            part = part[os.write(descriptor, part) :]
        except BlockingIOError:  # the parent process may have made stderr non-blocking
            select.select([], [descriptor], [])


def configure_logging(level: str) -> None:
    """Send logs of a level and above to stderr as JSON, including those of uvicorn and Python's warnings."""
    # If the process was started without stderr, its descriptor may be in use by another file or socket.
    descriptor = os.open(os.devnull, os.O_WRONLY) if sys.__stderr__ is None else sys.__stderr__.fileno()
    logging.basicConfig(level=level.upper(), handlers=[LineLogHandler(descriptor)], force=True)
    logging.captureWarnings(capture=True)
    for library in ("httpx2", "faiss"):  # a line per request to an endpoint; which builds of FAISS are not installed
        logging.getLogger(library).setLevel(logging.WARNING)
    # Lines do not name code, thread or process, so these need not be found (Python's logging HOWTO, "Optimization").
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def count_dropped_lines(count: Callable[[], object]) -> None:
    """Call `count` for each line that is dropped from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LineLogHandler):
            handler.on_drop = count
