"""Logging: one JSON object a line on stderr, for every logger of the process, without texts of queries or documents.

A record is queued as a line, and a thread of its own writes it. Where nobody reads stderr that thread waits, the queue
fills, and further lines are dropped and counted: no request, probe or signal ever waits for the log.
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

_WRITE_INTERVAL_SECONDS = 0.1  # nobody who reads along notices
_MAX_QUEUED_LINES = 4096  # 0.7 s of cached replies at their fastest (docs/benchmarks/serving.md), some 1 MB
_FLUSH_SECONDS = 1.0  # for the last lines, when the process ends: a reader that is there takes them in milliseconds
# Writes of up to this size are not mixed with those of other workers into the same pipe (POSIX, write()).
_MAX_WRITE_BYTES = getattr(select, "PIPE_BUF", 512)
_formatter = logging.Formatter()


def json_line(record: logging.LogRecord) -> bytes:
    """Write a record as a line of JSON: time, level, logger, message, its `fields`, and a traceback where it has one.

    Args:
        record: `fields`, which `extra` may set, are further keys.
    """
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


class JsonLogHandler(QueueHandler):
    """Queues records as lines, and drops them while too many wait; `on_drop` is called for each that is dropped.

    The queue is a SimpleQueue, bounded here: queue.Queue has a bound of its own, but its locks are Python code, which
    every request would run.
    """

    def __init__(self, descriptor: int) -> None:
        """Start the thread that writes.

        Args:
            descriptor: Of the open file that lines are written to.
        """
        lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        super().__init__(lines)
        self.on_drop: Callable[[], object] = lambda: None
        self._lines = lines
        self._writer = _LineWriter(lines, descriptor)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record; those from WARNING on are written at once."""
        if self._lines.qsize() >= _MAX_QUEUED_LINES:
            self.on_drop()
            return
        super().emit(record)
        if record.levelno >= logging.WARNING:
            self._writer.hurry.set()

    def prepare(self, record: logging.LogRecord) -> bytes:
        """Convert a record to the line that is queued."""
        return json_line(record)

    def close(self) -> None:
        """Wait until the queued lines are written, a second at most: nobody may be reading."""
        self._writer.stop()
        super().close()


class _LineWriter(QueueListener):
    """Writes lines together ten times a second, and at once when `hurry` is set.

    A thread that woke up for each line would take the interpreter's lock from the event loop each time, which gets it
    back late in a busy process. kill -9 loses the last tenth of a second.
    """

    def __init__(self, lines: "queue.SimpleQueue[bytes | None]", descriptor: int) -> None:
        super().__init__(lines)
        self.hurry = threading.Event()
        self._lines, self._descriptor = lines, descriptor
        self._ended = threading.Event()

    def dequeue(self, block: bool) -> bytes | None:  # type: ignore[override]  # lines, which `prepare` made of records
        """Return the next line, None at the end."""
        line = self._lines.get(block)
        if line is None:
            self._ended.set()
        return line

    def handle(self, record: bytes) -> None:  # type: ignore[override]  # as above
        """Write a line together with those that come within a tenth of a second."""
        self.hurry.wait(_WRITE_INTERVAL_SECONDS)
        self.hurry.clear()
        with contextlib.suppress(OSError):  # nobody reads any more: no reason not to answer
            for part in _batches(record, self._lines):
                _write_all(self._descriptor, part)

    def stop(self) -> None:
        """Write what is queued, and return after a second at the latest."""
        self.enqueue_sentinel()
        self.hurry.set()
        self._ended.wait(_FLUSH_SECONDS)


def _batches(first: bytes, lines: "queue.SimpleQueue[bytes | None]") -> Iterator[bytes]:
    """Join whole lines, as many as fit into one write, until the queue is empty."""
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
    """Write all of it, not through sys.stderr, whose lock would keep the interpreter from ending while this waits."""
    while part:
        try:
            part = part[os.write(descriptor, part) :]
        except BlockingIOError:  # whoever started this process may have its end of stderr so
            select.select([], [descriptor], [])


def configure_logging(level: str) -> None:
    """Send all logs to stderr as JSON, those of uvicorn and Python's warnings included.

    Args:
        level: Name of the lowest level that is logged, in any case.
    """
    # A process that was started without stderr may have a file or a socket under its number by now.
    descriptor = os.open(os.devnull, os.O_WRONLY) if sys.__stderr__ is None else sys.__stderr__.fileno()
    logging.basicConfig(level=level.upper(), handlers=[JsonLogHandler(descriptor)], force=True)
    logging.captureWarnings(capture=True)
    # No line names its code, thread or process, so none has to be found (Python's logging HOWTO, "Optimization").
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def count_dropped_lines(count: Callable[[], object]) -> None:
    """Count the lines that are dropped from now on.

    Args:
        count: Is called for each of them.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, JsonLogHandler):
            handler.on_drop = count
