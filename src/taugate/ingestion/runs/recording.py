"""Records a run: sends queries to a store, one after the other, and writes the results of each.

Every line is written at once, so that a run that was interrupted is continued after its last complete line.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from taugate.errors import InputError
from taugate.ingestion.dataset.lines import read_objects, required_id, required_text, stored_file
from taugate.ingestion.dataset.queries import QUERIES
from taugate.ingestion.runs.search_request import Fields, StoreSearch

_BLOCK = 1 << 16  # bytes that are read at a time to find the last line break


def read_run_queries(path: Path) -> list[dict[str, Any]]:
    """Read queries as in a data set; further fields, such as a vector, may be used in the request.

    Args:
        path: File with lines of JSON, or a folder with queries.jsonl.

    Returns:
        The fields of each line, with `query_id` and `query` for its id and text.

    Raises:
        InputError: If the file cannot be read or has no query; LineError if a line is invalid.
    """
    path = stored_file(path / QUERIES if path.is_dir() else path)
    seen: dict[str, int] = {}
    queries = [
        record | {"query_id": required_id(path, line, record, seen), "query": required_text(path, line, record, "text")}
        for line, record in read_objects(path, "give a file of queries, one JSON object with _id and text per line")
    ]
    if not queries:
        raise InputError(f"{path}: holds no query; write one JSON object per line")
    return queries


class RunFile:
    """A run that grows by a line per query. `finished` holds the ids of its queries.

    Args:
        path: The file, which may not exist yet.
        request: Digest of the request, which every line repeats.

    Raises:
        InputError: If the file is another run.
    """

    def __init__(self, path: Path, request: str) -> None:
        self._path, self._request = path, request
        self.finished: set[str] = set()
        if not path.exists():
            return
        _cut_unfinished_line(path)
        for _, record in read_objects(path) if path.stat().st_size else ():
            if record.get("request") != request:
                raise InputError(
                    f"{path}: was written by another request, so its scores may differ; give another --to, or remove it"
                )
            self.finished.add(str(record.get("query_id")))

    def append(self, fields: Fields, results: Sequence[Mapping[str, Any]]) -> None:
        """Add a query with its results.

        Raises:
            OSError: If the file cannot be written.
        """
        query = {name: fields[name] for name in ("query_id", "query", "origin") if name in fields}
        line = orjson.dumps(query | {"request": self._request, "results": results}, option=orjson.OPT_APPEND_NEWLINE)
        with self._path.open("ab") as file:
            file.write(line)
        self.finished.add(str(fields["query_id"]))


def record_run(
    queries: Sequence[Fields],
    search: StoreSearch,
    run: RunFile,
    depth: int,
    rate: float,
    advance: Callable[[int], object],
) -> int:
    """Send queries, at most `rate` a second, and add their results to a run.

    Args:
        queries: Fields of the queries.
        search: The store.
        run: The run.
        depth: Number of results to request.
        rate: Maximum number of queries a second.
        advance: Called after every query with 1.

    Returns:
        The number of queries with fewer results than requested.

    Raises:
        InputError: If the store refuses a query; other errors as in Store.send. The run then has the queries before it.
    """
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
