"""The query log: the content of its lines, and how they are read.

The service appends one JSON object per line (TAUGATE_QUERY_LOG): queries with what was shown, and judgements by users.
`taugate drift`, `taugate traffic` and `taugate judge` read them with this module.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import orjson
from pydantic import Field, TypeAdapter, ValidationError

from taugate.drift.observations import hashed, query_key
from taugate.errors import InputError
from taugate.retrieval.query import NotComparable, Stage

VERSION = 2
_LATEST = 253_370_764_799.0  # the last second of 9998, so that the ends of chart axes are valid dates as well
_LARGEST = float(np.finfo(np.float32).max)  # similarities are float32
_MAX_LINE_BYTES = 64 << 20  # a query has some thousand characters at most, and a reply some hundred results
_HASHED = re.compile(r"^[0-9a-f]{16}$")
_REMEDY = "the service did not write this line; remove it"
_MISSING = "the service writes one if TAUGATE_QUERY_LOG names it"
# Other files that match `queries.log*`: logs that logrotate compressed, and the page of an earlier replay.
_NO_LOGS = {".gz": "compressed; unpack it with gunzip", ".html": "a report, not a log; leave it out"}

ROOT = b'{"root":'  # begins a line that says nothing of queries, see `chain.py`

_Text = Annotated[str, Field(strict=True)]
_Time = Annotated[float, Field(strict=True, ge=0, le=_LATEST, allow_inf_nan=False)]
_Similarity = Annotated[float, Field(strict=True, ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]
_Propensity = Annotated[float, Field(strict=True, gt=0, le=1)]
_Count = Annotated[int, Field(strict=True, ge=0)]
_Rank = Annotated[int, Field(strict=True, ge=1)]


# Records are not frozen: the service makes six for each query, and frozen ones take twice as long.
@dataclass(slots=True, kw_only=True)
class ShownResult:
    """A result in a reply: its rank and score among all results considered.

    `propensity` is the probability that a reply to this query shows it, 1 for results that the policy keeps.
    """

    id: _Text
    rank: _Rank
    score: _Similarity
    propensity: _Propensity


@dataclass(slots=True, kw_only=True)
class _Line:
    """What the lines of queries and of judgements have in common."""

    v: Literal[2] = 2
    at: _Time  # Unix time in seconds
    key: _Text | None  # name of the API key that sent the query, or the judgement; None without keys
    collection: _Text  # name of the data set of the release
    release: _Text  # id of the release
    stage: Stage | None = None  # stage that ranked the results; None if the release has one
    # Why the reply cannot be compared with the calibration; None if it can. `parse` guesses it for queries of earlier
    # versions.
    not_comparable: NotComparable | None = None


@dataclass(slots=True, kw_only=True)
class LoggedQuery(_Line):
    """A line for an answered query."""

    query_id: _Text  # id of the reply
    query: _Text  # text of the query, or 16 hexadecimal digits if the service writes no texts
    # Filter of the request, as JSON, or its hash if the service writes no texts; without the key's filter.
    filter: dict[str, Any] | _Text | None
    k: _Rank  # number of results considered
    threshold: _Similarity | None  # threshold of the request, used instead of the calibrated one
    group_by: Literal["document"] | None  # grouping of the request
    kept: _Count  # how many of the calibration's K results the policy keeps
    # Similarities of the calibration's K results, best first. Empty if they are not comparable.
    topk: list[_Similarity]
    # Similarities with random documents. Empty if `topk` is, or if the release has no documents.
    random: list[_Similarity]
    shown: list[ShownResult]  # the results in the reply, in its order
    # Mean scores of the retriever's components among these K results. Empty without any, or if `topk` is.
    components: list[_Similarity] = field(default_factory=list)

    @property
    def has_text(self) -> bool:
        """True if `query` is the text; 16 hexadecimal digits are always taken for a hash."""
        return not is_hash(self.query)

    @property
    def query_key(self) -> int:
        """A number below 2⁶⁴, the same for the text of the query and for its hash."""
        return _key(self.query)


@dataclass(slots=True, kw_only=True)
class LoggedJudgement(_Line):
    """A line for a judgement by a user."""

    # Id of the judged reply, whose own line has the text; None if the judgement names the query itself.
    query_id: _Text | None
    query: _Text | None  # text or hash of the query if there is no query_id, else None
    document_id: _Text  # id of the passage
    relevant: Annotated[bool, Field(strict=True)]  # whether it answers the query
    rank: _Rank | None  # rank among the results, from 1, None if unknown
    score: _Similarity
    # Whether the policy keeps the passage; False for one that is shown for another reason.
    kept: Annotated[bool, Field(strict=True)] = False
    of: _Count = 0  # number of results of the reply that the policy keeps; 0 in lines of earlier versions
    # Hash of the query, also if there is a query_id; None in lines of earlier versions.
    query_hash: Annotated[str, Field(strict=True, pattern=_HASHED)] | None = None

    @property
    def query_key(self) -> int | None:
        """The key of the query, see LoggedQuery; None if `query_id` names the reply."""
        return None if self.query is None else _key(self.query)


_QUERY, _JUDGEMENT = TypeAdapter(LoggedQuery), TypeAdapter(LoggedJudgement)


class LogLine(NamedTuple):
    """A line of a log: the file, the number of the line from 1, and its content."""

    path: Path
    number: int
    record: LoggedQuery | LoggedJudgement

    def fault(self, problem: str) -> InputError:
        """Return an error that names the line, the problem, and what to do."""
        return _fault(self.path, self.number, problem)


def line_bytes(record: LoggedQuery | LoggedJudgement) -> bytes:
    """Return a record as the line that the log has."""
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def hashed_filter(query_filter: dict[str, Any]) -> str:
    """Return the hash of a filter in JSON form, 16 hexadecimal digits, equal for equal filters."""
    return hashed(orjson.dumps(query_filter, option=orjson.OPT_SORT_KEYS).decode())


def read_query_log(paths: Sequence[Path]) -> Iterator[LogLine]:
    """Yield the lines of logs, in the order of the files.

    An invalid last line without a line break is skipped: the service is writing it, or was killed while writing. Raises
    InputError if a file is missing or named twice, or a line is of an earlier version or not of a query log.
    """
    for path in paths:
        if path.suffix in _NO_LOGS:
            raise InputError(f"{path}: {_NO_LOGS[path.suffix]}")
        if sum(path.resolve() == other.resolve() for other in paths) > 1:
            raise InputError(f"{path}: named twice; name each file once")
    for path in paths:
        for number, line in numbered_lines(path):
            if line.startswith(ROOT):
                continue
            try:
                record = parse(line)
            except ValueError as error:
                if not line.endswith(b"\n"):
                    break
                raise _fault(path, number, str(error)) from error
            except InputError as error:
                raise InputError(f"{path}:{number}: {error}") from error
            yield LogLine(path, number, record)


def parse(line: bytes) -> LoggedQuery | LoggedJudgement:
    """Parse one line.

    Raises ValueError if it is not of a query log. Raises InputError if it is of an earlier version.
    """
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg})") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    version = record.get("v")
    if version is None and "release" in record and ("topk" in record or "correct" in record):
        raise InputError(
            "written by a version before 0.3, which did not log what was shown; replay it with that version, or begin "
            "a new log"
        )
    if version != VERSION:
        raise ValueError(f'"v" is {"missing" if version is None else repr(version)[:20]}, not {VERSION}')
    try:
        if "relevant" in record:
            return _JUDGEMENT.validate_python(record)
        return _QUERY.validate_python(record if record.get("not_comparable") else record | _guessed(record.get))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = ".".join(map(str, fault["loc"]))
        raise ValueError(f'"{name}": {fault["msg"][0].lower()}{fault["msg"][1:]}') from error


def _guessed(value: Callable[[str], object]) -> dict[str, NotComparable | None]:
    """Return the reason for a line of an earlier version, which lists no similarities of a query within a filter."""
    # Its K is not known, so what it says of a request for more results is used.
    applies = {
        NotComparable.UNREADABLE: value("unreadable"),
        NotComparable.TRUNCATED: value("truncated"),
        NotComparable.FILTERED: not value("topk"),
        NotComparable.THRESHOLD: value("threshold") is not None,
        NotComparable.GROUPED: value("group_by") is not None,
    }
    return {"not_comparable": next((reason for reason, holds in applies.items() if holds), None)}


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number, from 1, and the bytes of each line.

    Raises InputError if the file cannot be read, or a line is too long.
    """
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > _MAX_LINE_BYTES:
                    raise _fault(path, number, f"longer than {_MAX_LINE_BYTES >> 20} MiB")
                yield number, line
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; {_MISSING}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from error


def is_hash(query: str) -> bool:
    """Return whether a query in the log is a hash; 16 hexadecimal digits are always taken for one."""
    return _HASHED.fullmatch(query) is not None


def _key(query: str) -> int:
    return int(query, 16) if is_hash(query) else query_key(query)


def _fault(path: Path, number: int, problem: str) -> InputError:
    return InputError(f"{path}:{number}: {problem}; {_REMEDY}")
