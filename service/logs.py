"""One JSON object a line on stderr, for every logger of the process. No query text and no document text."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

# What every record has; the rest of its attributes came from `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonFormatter(logging.Formatter):
    """A record as JSON: time, level, logger, message, then its extras, then a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record on one line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        given = vars(record)
        entry |= {name: given[name] for name in sorted(given.keys() - _STANDARD)}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(entry, default=str).decode()


def configure(level: str) -> None:
    """Send everything to stderr as JSON, uvicorn's own lines included."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # No line tells of its code, thread or process, so that none is looked up (logging, "Optimization").
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
