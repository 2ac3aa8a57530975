"""Records a run: sends queries to a store, one after the other, and writes the results and the returned texts.

Every line is written at once, so that a run that was interrupted is continued after its last complete line.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

import orjson

from taugate.data.lines import read_objects, required_id, required_text, stored_file
from taugate.data.queries import QUERIES, QueryFile, sole_writer
from taugate.data.questions import off_topic_sent
from taugate.data.runs.search_request import Fields, StoreSearch
from taugate.errors import InputError
from taugate.storage.files import Json, atomic_write, sha256_json, writing

_FIELDS = "fields"  # digest of the fields that the request uses beside the text
_BLOCK = 1 << 16  # bytes that are read at a time to find the last line break


def add_documents(data: Path, texts: Mapping[str, str]) -> int:
    """Add the documents that a data set lacks; returns the number of its documents."""
    from taugate.data.corpus import CORPUS  # loads NumPy, which reading the queries does without

    data.mkdir(parents=True, exist_ok=True)
    with sole_writer(data):
        path = stored_file(data / CORPUS)
        known = {str(record.get("_id")) for _, record in read_objects(path)} if path.exists() else set()
        new = [_line({"_id": name, "text": text}) for name, text in texts.items() if name not in known]
        if new:
            before = path.read_bytes() if path.exists() else b""
            before += b"" if not before or before.endswith(b"\n") else b"\n"
            atomic_write(path, before + b"".join(new))
    return len(known) + len(new)


def add_run(data: Path, run: Path, queries: Sequence[Fields]) -> tuple[int, int]:
    """Add the queries and the returned texts of a run to a data set; a query with another text is replaced."""
    # Returns the number of documents of the data set, and of results without a text.
    texts: dict[str, str] = {}
    missing = 0
    for _, record in read_objects(run):
        for result in cast("list[dict[str, Json]]", record["results"]):
            text = result.get("text")
            if isinstance(text, str) and text.strip():
                texts.setdefault(str(result["id"]), text)
            else:
                missing += 1
    documents = add_documents(data, texts)
    with sole_writer(data):
        before = QueryFile.read(data)
        earlier = before.texts()
        changed = {
            query_id: fields
            for fields in queries
            if earlier.get(query_id := str(fields["query_id"])) != fields["query"]
        }
        names = {"query_id": "_id", "query": "text", "origin": "origin"}
        lines = (_line({names[name]: fields[name] for name in names if name in fields}) for fields in changed.values())
        if changed:
            atomic_write(data / QUERIES, before.bytes_without(changed) + b"".join(lines))
    return documents, missing


def _line(record: Mapping[str, Json]) -> bytes:
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def read_run_queries(path: Path) -> list[dict[str, Json]]:
    """Read queries as in a data set; further fields, such as a vector, may be used in the request."""
    # Returns the fields of each line, with `query_id` and `query` for its id and text.
    path = stored_file(path / QUERIES if path.is_dir() else path)
    seen: dict[str, int] = {}
    queries = [
        record | {"query_id": required_id(path, line, record, seen), "query": required_text(path, line, record, "text")}
        for line, record in read_objects(path, "give a file of queries, one JSON object with _id and text per line")
    ]
    if not queries:
        raise InputError(f"{path}: holds no query; write one JSON object per line")
    return queries


def off_topic_run(run: Path) -> Path:
    """Return the path of the run of off-topic questions that belongs to a run."""
    return run.with_name(f"{run.name}.off-topic.jsonl")


def off_topic_fields(queries: Iterable[str]) -> list[dict[str, str]]:
    """Return fields of off-topic questions that come with Taugate, in the language of queries."""
    sent = off_topic_sent(queries)
    return [{"query_id": f"off-topic-{number}", "query": question.text} for number, question in enumerate(sent)]


class RunFile:
    """A run that grows by a line per query; raises InputError if it is a run of another request."""

    def __init__(
        self,
        path: Path,
        request: str,
        queries: Sequence[Fields],
        used: Collection[str] = (),
        encoder: str | None = None,
    ) -> None:
        # `request` is a digest, which lines repeat; `used` names the fields that the request uses beside the text;
        # `encoder` is the digest of what made the vectors of the queries, None if they have their own. Lines of other
        # queries, and of queries that were sent with other fields, are removed.
        self._path, self._request, self._used, self._encoder = path, request, sorted(used), encoder
        expected = {fields["query_id"]: self._query(fields) for fields in queries}
        kept: dict[str, int] = {}
        dropped = set[str]()
        if path.exists():
            _cut_unfinished_line(path)
        for number, record in read_objects(path) if path.exists() and path.stat().st_size else ():
            if record.get("request") != request:
                raise InputError(
                    f"{path}: was written by another request, so its scores may differ; give another --to, or remove it"
                )
            name = str(record.get("query_id"))
            query = expected.get(name, {"query_id": None})
            # Lines of earlier versions have no digest of the other fields.
            if all(record.get(key) == query[key] for key in query if key != _FIELDS or key in record):
                kept[name] = number
            else:
                dropped.add(name)
        self.pending = [fields for fields in queries if fields["query_id"] not in kept]
        self.removed = len(dropped - expected.keys())
        self.changed = len(dropped) - self.removed
        if dropped:
            numbers = {*kept.values()}
            with path.open("rb") as file:
                content = b"".join(line for number, line in enumerate(file, 1) if number in numbers)
            atomic_write(path, content)

    def append(self, fields: Fields, results: Sequence[Mapping[str, Json]]) -> None:
        """Add a query with its results. Raises OSError if the file cannot be written."""
        query = {name: value for name, value in self._query(fields).items() if value is not None}
        line = orjson.dumps(query | {"request": self._request, "results": results}, option=orjson.OPT_APPEND_NEWLINE)
        with writing(self._path), self._path.open("ab") as file:
            file.write(line)

    def _query(self, fields: Fields) -> dict[str, Json]:
        """Return what a line says of its query: what makes its results comparable."""
        used = sha256_json([self._encoder, [fields.get(name) for name in self._used]])[:12]
        query: dict[str, Json] = {name: fields.get(name) for name in ("query_id", "query", "origin")}
        return query | {_FIELDS: used if self._used or self._encoder else None}


def record_run(
    queries: Sequence[Fields],
    search: StoreSearch,
    run: RunFile,
    depth: int,
    rate: float,
    advance: Callable[[int], object],
) -> int:
    """Send queries, at most `rate` a second, and add their results to a run."""
    # Returns the number of queries with fewer results than requested.
    short, next_time = 0, 0.0
    for fields in queries:
        time.sleep(max(0.0, next_time - time.monotonic()))
        next_time = time.monotonic() + 1 / rate
        results = search.search({**fields, "depth": depth})
        short += len(results) < depth
        run.append(fields, [result.record() for result in results])
        advance(1)
    return short


def _cut_unfinished_line(path: Path) -> None:
    """Remove what a killed process has written of its last line."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        size = end
        while size:
            start = max(0, size - _BLOCK)
            file.seek(start)
            place = file.read(size - start).rfind(b"\n")
            if place >= 0:
                size = start + place + 1
                break
            size = start
        if size < end:
            file.truncate(size)
