"""One JSON object a line on stderr, for every logger of the process. No query text and no document text.

Whoever logs puts a line into a queue and goes on; a thread of its own writes it. Where nobody reads stderr, that thread
waits, the queue fills, and further lines are dropped and counted: no request, probe or signal waits for a log.
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

_SECONDS = 0.1  # between two writes: nobody who reads along notices
_MOST_LINES = 4096  # that wait: 0.7 s of cached replies at their fastest (docs/benchmarks/serving.md), some 1 MB
_LAST_SECONDS = 1.0  # for the last lines, when the process ends: a reader that is there takes them in milliseconds
# Writes of one size at most are not mixed with those of other workers into the same pipe (POSIX, write()).
_TOGETHER = getattr(select, "PIPE_BUF", 512)
_tracebacks = logging.Formatter()


def json_line(record: logging.LogRecord) -> bytes:
    """A record as JSON: time, level, logger, message, then its `fields`, then a traceback where there is one."""
    entry: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    entry |= getattr(record, "fields", {})
    if record.exc_info:
        entry["traceback"] = _tracebacks.formatException(record.exc_info)
    return orjson.dumps(entry, default=str, option=orjson.OPT_APPEND_NEWLINE)


class QueuedLines(QueueHandler):
    """Queues a record as a line, or drops it where too many wait; on_drop: is called for each that is dropped.

    The queue is a SimpleQueue, bounded here: queue.Queue has a bound of its own, but its locks are Python code, which
    every request would run.
    """

    def __init__(self, descriptor: int) -> None:
        lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        super().__init__(lines)
        self.on_drop: Callable[[], object] = lambda: None
        self._lines = lines
        self._writer = _Writer(lines, descriptor)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record; from WARNING on it is written at once."""
        if self._lines.qsize() >= _MOST_LINES:
            self.on_drop()
            return
        super().emit(record)
        if record.levelno >= logging.WARNING:
            self._writer.hurry.set()

    def prepare(self, record: logging.LogRecord) -> bytes:
        """The record as it is queued."""
        return json_line(record)

    def close(self) -> None:
        """Wait until what is queued is written, but not for a reader that is not there."""
        self._writer.stop()
        super().close()


class _Writer(QueueListener):
    """Writes lines together, ten times a second, and at once when told to hurry.

    A thread that woke up for each line would take the interpreter from the event loop each time, which a busy process
    gives back late. kill -9 takes the last tenth of a second with it.
    """

    def __init__(self, lines: "queue.SimpleQueue[bytes | None]", descriptor: int) -> None:
        super().__init__(lines)
        self.hurry = threading.Event()
        self._lines, self._descriptor = lines, descriptor
        self._ended = threading.Event()

    def dequeue(self, block: bool) -> bytes | None:  # type: ignore[override]  # what `prepare` made of a record
        """The next line, None at the end."""
        line = self._lines.get(block)
        if line is None:
            self._ended.set()
        return line

    def handle(self, record: bytes) -> None:  # type: ignore[override]  # as above
        """Write a line with those that come within a tenth of a second."""
        self.hurry.wait(_SECONDS)
        self.hurry.clear()
        with contextlib.suppress(OSError):  # nobody reads any more: no reason not to answer
            for part in _parts(record, self._lines):
                _write(self._descriptor, part)

    def stop(self) -> None:
        """Write what is queued; returns after a second at the latest."""
        self.enqueue_sentinel()
        self.hurry.set()
        self._ended.wait(_LAST_SECONDS)


def _parts(first: bytes, lines: "queue.SimpleQueue[bytes | None]") -> Iterator[bytes]:
    """Whole lines, as many together as are written at a time, until none is left."""
    part = first
    for _ in range(lines.qsize()):
        line = lines.get_nowait()
        if line is None:
            lines.put(None)  # for `dequeue`
            break
        if len(part) + len(line) > _TOGETHER:
            yield part
            part = b""
        part += line
    yield part


def _write(descriptor: int, part: bytes) -> None:
    """All of it; not by way of sys.stderr, whose lock would keep the interpreter from ending while this waits."""
    while part:
        try:
            part = part[os.write(descriptor, part) :]
        except BlockingIOError:  # whoever started this process may have its end of stderr so
            select.select([], [descriptor], [])


def configure(level: str) -> None:
    """Send everything to stderr as JSON, uvicorn's own lines and Python's warnings included."""
    # A process that was started without stderr may have a file or a socket under its number by now.
    descriptor = os.open(os.devnull, os.O_WRONLY) if sys.__stderr__ is None else sys.__stderr__.fileno()
    logging.basicConfig(level=level.upper(), handlers=[QueuedLines(descriptor)], force=True)
    logging.captureWarnings(capture=True)
    # No line tells of its code, thread or process, so that none is looked up (logging, "Optimization").
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def count_dropped(count: Callable[[], object]) -> None:
    """Have `count` called for each line that is dropped from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, QueuedLines):
            handler.on_drop = count
