"""The query log: what its lines say, and how they are read back.

The service appends one JSON object a line (TAUGATE_QUERY_LOG): what was asked and shown, and what users judged. Whoever
learns from traffic reads the lines here: `taugate drift`, `taugate traffic` and `taugate judge`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import orjson
from pydantic import Field, TypeAdapter, ValidationError

from taugate.drift.observations import hashed, query_key
from taugate.errors import InputError

VERSION = 2
_LATEST = 253_370_764_799.0  # the last second of 9998: what is drawn may end a little later
_LARGEST = float(np.finfo(np.float32).max)  # similarities are float32
# A query has some thousand characters at most, and a reply some hundred results.
_MAX_LINE_BYTES = 64 << 20
_HASHED = re.compile(r"[0-9a-f]{16}")
_REMEDY = "the line is not as the service wrote it; remove it"
_MISSING = "the service writes one if TAUGATE_QUERY_LOG names it"
# What `queries.log*` also finds: logs that logrotate compressed, and the page of an earlier replay.
_NO_LOGS = {".gz": "compressed; unpack it with gunzip", ".html": "a page, not a log; leave it out"}

_Text = Annotated[str, Field(strict=True)]
_Time = Annotated[float, Field(strict=True, ge=0, le=_LATEST, allow_inf_nan=False)]
_Similarity = Annotated[float, Field(strict=True, ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]
_Propensity = Annotated[float, Field(strict=True, gt=0, le=1)]
_Count = Annotated[int, Field(strict=True, ge=0)]
_Rank = Annotated[int, Field(strict=True, ge=1)]


# Records are not frozen: the service makes six for each query, and a frozen one takes twice as long.
@dataclass(slots=True, kw_only=True)
class ShownResult:
    """A result in a reply.

    Attributes:
        id: Of the passage.
        rank: Its place among all that were considered, from 1.
        score: Its similarity.
        propensity: The probability that a reply to this query shows it, 1 for what the policy keeps.
    """

    id: _Text
    rank: _Rank
    score: _Similarity
    propensity: _Propensity


@dataclass(slots=True, kw_only=True)
class LoggedQuery:
    """A line for a query that was answered.

    Attributes:
        at: Unix time in seconds.
        query_id: Of the reply.
        query: Its text, or 16 hexadecimal digits where the service writes no texts.
        key: Name of the API key, None without keys.
        collection: Name of the data set of the release.
        release: Id of the release.
        filter: Of the request, as JSON, or its hash where the service writes no texts; the filter of the key is not in
            it.
        k: How many results were considered.
        threshold: Of the request, in place of the calibrated one.
        group_by: Of the request.
        kept: How many of the calibration's K results the policy keeps.
        topk: Their similarities, best first.
        random: Similarities with random documents. Both are empty where a filter, of the request or of the key, was in
            force, and if the query was not read whole.
        shown: The results in the reply, in its order.
        truncated: The encoder read only the beginning of the query.
        unreadable: It does not know most of the query's text.
    """

    v: Literal[2] = 2
    at: _Time
    query_id: _Text
    query: _Text
    key: _Text | None
    collection: _Text
    release: _Text
    filter: dict[str, Any] | _Text | None
    k: _Rank
    threshold: _Similarity | None
    group_by: Literal["document"] | None
    kept: _Count
    topk: list[_Similarity]
    random: list[_Similarity]
    shown: list[ShownResult]
    truncated: Annotated[bool, Field(strict=True)] = False
    unreadable: Annotated[bool, Field(strict=True)] = False

    @property
    def has_text(self) -> bool:
        """True where `query` is the text, not its hash; 16 hexadecimal digits are always taken for a hash."""
        return not is_hash(self.query)

    @property
    def query_key(self) -> int:
        """A number below 2⁶⁴, the same whether the service wrote the text of the query or its hash."""
        return _key(self.query)

    @property
    def filtered(self) -> bool:
        """True if a filter, of the request or of the API key, left documents out."""
        return not (self.topk or self.truncated or self.unreadable)

    @property
    def is_comparable(self) -> bool:
        """True if drift compares the query with the calibration: not within a filter, and read whole."""
        return bool(self.topk)


@dataclass(slots=True, kw_only=True)
class LoggedJudgement:
    """A line for a judgement by a user.

    Attributes:
        at: Unix time in seconds.
        query_id: Of the reply that was judged, whose own line has the text; None where the judgement names the query
            itself.
        query: Its text or hash where there is no query_id, else None.
        document_id: Of the passage.
        relevant: Whether it answers the query.
        rank: Its place among the results, from 1, where it is known.
        score: Its similarity with the query.
        key: Name of the API key of whoever judged, None without keys.
        collection: As of LoggedQuery.
        release: As of LoggedQuery.
    """

    v: Literal[2] = 2
    at: _Time
    query_id: _Text | None
    query: _Text | None
    document_id: _Text
    relevant: Annotated[bool, Field(strict=True)]
    rank: _Rank | None
    score: _Similarity
    key: _Text | None
    collection: _Text
    release: _Text

    @property
    def query_key(self) -> int | None:
        """The key of the query as of LoggedQuery, None where `query_id` names the reply."""
        return None if self.query is None else _key(self.query)


_QUERY, _JUDGEMENT = TypeAdapter(LoggedQuery), TypeAdapter(LoggedJudgement)


class LogLine(NamedTuple):
    """A line of a log: the file, the number of the line from 1, and what it says."""

    path: Path
    number: int
    record: LoggedQuery | LoggedJudgement

    def fault(self, wrong: str) -> InputError:
        """Return an error that says what is `wrong` with the line, where it is, and what to do."""
        return _fault(self.path, self.number, wrong)


def line_bytes(record: LoggedQuery | LoggedJudgement) -> bytes:
    """Return a record as the line that the log has."""
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def hashed_filter(wanted: dict[str, Any]) -> str:
    """Return the hash of a filter, 16 hexadecimal digits, equal for equal filters.

    Args:
        wanted: The filter as JSON.
    """
    return hashed(orjson.dumps(wanted, option=orjson.OPT_SORT_KEYS).decode())


def read_query_log(paths: Sequence[Path]) -> Iterator[LogLine]:
    """Yield the lines of one log or several, in the order of the files.

    The last line of a file is passed over where it has no line break and cannot be read: the service was writing it, or
    was killed then.

    Args:
        paths: The files.

    Raises:
        InputError: Where a file is missing or named twice, and where a line is of an earlier version or not of a query
            log.
    """
    for path in paths:
        if path.suffix in _NO_LOGS:
            raise InputError(f"{path}: {_NO_LOGS[path.suffix]}")
        if sum(path.resolve() == other.resolve() for other in paths) > 1:
            raise InputError(f"{path}: named twice; name each file once")
    for path in paths:
        for number, line in _lines(path):
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
    """Read one line.

    Raises:
        ValueError: Where it is not of a query log, InputError where it is of an earlier version.
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
        return _JUDGEMENT.validate_python(record) if "relevant" in record else _QUERY.validate_python(record)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = ".".join(map(str, fault["loc"]))
        raise ValueError(f'"{name}": {fault["msg"][0].lower()}{fault["msg"][1:]}') from error


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield number, from 1, and bytes of each line.

    Raises:
        InputError: .
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
    """Tell whether a query in the log is a hash; 16 hexadecimal digits are always taken for one."""
    return _HASHED.fullmatch(query) is not None


def _key(query: str) -> int:
    return int(query, 16) if is_hash(query) else query_key(query)


def _fault(path: Path, number: int, wrong: str) -> InputError:
    return InputError(f"{path}:{number}: {wrong}; {_REMEDY}")
