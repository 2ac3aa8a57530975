"""The texts that a store returns, as a data set that people can judge."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import orjson

from taugate.ingestion.dataset.corpus import CORPUS
from taugate.ingestion.dataset.editing import QueryFile
from taugate.ingestion.dataset.lines import read_objects, stored_file
from taugate.ingestion.dataset.lock import sole_writer
from taugate.ingestion.dataset.queries import QUERIES
from taugate.ingestion.runs.search_request import Fields
from taugate.storage.files import atomic_write
from taugate.storage.json_values import Json


def add_documents(data: Path, texts: Mapping[str, str]) -> int:
    """Add the documents that a data set lacks; returns the number of its documents.

    Args:
        data: Folder of the data set, which is made if it does not exist.
        texts: Texts by id.

    Raises:
        InputError: If a file cannot be read.
        OSError: If it cannot be written.
    """
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
    """Add the queries and the returned texts of a run to a data set; a query with another text is replaced.

    Args:
        data: Folder of the data set, which is made if it does not exist.
        run: A run with texts.
        queries: Fields of the queries.

    Returns:
        The number of documents of the data set, and of results without a text.

    Raises:
        InputError: If a file cannot be read.
        OSError: If it cannot be written.
    """
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
