"""A query for each of a sample of documents, written beside the queries that people asked."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from taugate.errors import InputError
from taugate.ingestion.dataset.beir import CORPUS, GENERATED, HEADER, QUERIES, Origin, qrels_of
from taugate.ingestion.dataset.lines import read_lines, read_objects, required_id, required_text, stored_file
from taugate.ingestion.dataset.lock import sole_writer
from taugate.ingestion.queries.crop import crop, sampling_key
from taugate.storage.files import atomic_write

# Enough for an accuracy to within three points: 1.96 · √(.25 / 1000) = .031.
MOST_QUERIES = 1000


class _Source(NamedTuple):
    """A document that a query is made from; key: its place in the sample, negative so that a heap drops the highest."""

    key: int
    identifier: str
    text: str


@dataclass
class Losses:
    """Documents that gave no query.

    empty: too short. duplicate: the same words as another query. example: repeats an example of the prompt.
    not_question: no question. round_trip: a search for the query does not find its document.
    """

    empty: int = 0
    duplicate: int = 0
    example: int = 0
    not_question: int = 0
    round_trip: int = 0


@dataclass
class GeneratedQueries:
    """What came of making queries.

    kept: number of queries written. lost: documents that gave none. documents: passages of the corpus.
    """

    kept: int = 0
    lost: Losses = field(default_factory=Losses)
    documents: int = 0


def generate_crops(data: Path, most: int, seed: int) -> GeneratedQueries:
    """Crop a query from each document of a seeded sample, and write queries and judgements into the data set.

    A query's only relevant passage is the one that it was cropped from. Crops of an earlier run are replaced; every
    other query keeps its line, byte for byte. Killed at any moment, the data set can be read and is complete.

    data: folder of the data set. most: number of documents that are sampled. seed: of sample and crops. Raises
    InputError where the corpus cannot be read or gives no query; then nothing is written.
    """
    if not data.is_dir():
        raise InputError(f"{data}: no such directory; give the folder that holds {CORPUS}")
    with sole_writer(data):
        result = GeneratedQueries()
        sources = _sample(data / CORPUS, most, seed, result)
        before = _QueryFile.read(data / QUERIES)
        made = dict(_crops(sources, seed, before, result))
        if not made:
            raise InputError(f"{data / CORPUS}: no document is long enough to crop a query from; add longer ones")
        _write(data, before, made, "crop")
    return result


def _sample(corpus: Path, most: int, seed: int, result: GeneratedQueries) -> list[_Source]:
    """Return the sampled documents, in the order of the corpus."""
    chosen: list[tuple[int, int, _Source]] = []
    seen: dict[str, int] = {}
    for position, (line, record) in enumerate(read_objects(corpus)):
        identifier = required_id(corpus, line, record, seen)
        source = _Source(-sampling_key(identifier, seed), identifier, required_text(corpus, line, record, "text"))
        push = heapq.heappush if len(chosen) < most else heapq.heappushpop
        push(chosen, (source.key, position, source))
        result.documents += 1
    return [source for _, _, source in sorted(chosen, key=lambda each: each[1])]


def _crops(
    sources: list[_Source], seed: int, before: "_QueryFile", result: GeneratedQueries
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the id of each query with its text and the id of its document; what is lost is counted."""
    seen = {_normalized(text) for text in before.texts("crop")}
    for source in sources:
        text = crop(source.text, source.identifier, seed)
        if not text:
            result.lost.empty += 1
        elif _normalized(text) in seen:
            result.lost.duplicate += 1
        else:
            seen.add(_normalized(text))
            name = f"crop:{source.identifier}"
            while name in before.others("crop"):
                name += "'"
            result.kept += 1
            yield name, (text, source.identifier)


def _normalized(text: str) -> str:
    return " ".join(text.casefold().split())


class _QueryFile(NamedTuple):
    """The lines of queries.jsonl, each as its bytes and as its record."""

    lines: list[tuple[bytes, dict[str, Any]]]

    @classmethod
    def read(cls, path: Path) -> "_QueryFile":
        """Read it; there is no line where there is no file. Raises InputError or LineError."""
        stored = stored_file(path)
        if stored != path:
            raise InputError(f"{stored}: queries cannot be added to a packed file; unpack it: gunzip {stored}")
        if not path.exists():
            return cls([])
        records = [record for _, record in read_objects(path)]
        return cls(list(zip(path.read_bytes().splitlines(keepends=True), records, strict=True)))

    def without(self, origin: Origin) -> bytes:
        """Return the lines of all queries of other origins, as they are."""
        kept = b"".join(line for line, record in self.lines if record.get("origin") != origin)
        return kept if not kept or kept.endswith(b"\n") else kept + b"\n"

    def texts(self, origin: Origin) -> list[str]:
        """Return the texts of all queries of other origins."""
        return [str(record.get("text")) for _, record in self.lines if record.get("origin") != origin]

    def others(self, origin: Origin) -> set[str]:
        """Return the ids of all queries of other origins."""
        return {str(record.get("_id")) for _, record in self.lines if record.get("origin") != origin}


def _write(data: Path, before: _QueryFile, made: dict[str, tuple[str, str]], origin: Origin) -> None:
    """Replace the generated queries of one origin and their judgements.

    The judgements change while both the old and the new queries are there, so that they never name one that is missing.
    """
    others = before.without(origin)
    added = {name: _query_line(name, text, origin) for name, (text, _) in made.items()}
    old = [line for line, record in before.lines if record.get("origin") == origin and record["_id"] not in added]
    new = b"".join(added.values())
    atomic_write(data / QUERIES, others + b"".join(line.rstrip(b"\n") + b"\n" for line in old) + new)
    qrels = data / qrels_of(GENERATED)
    qrels.parent.mkdir(exist_ok=True)
    gone = {record["_id"] for _, record in before.lines if record.get("origin") == origin}
    kept = [text for _, text in read_lines(qrels)][1:] if qrels.exists() else []
    rows = [row for row in kept if row.partition("\t")[0] not in gone | added.keys()]
    rows += [f"{name}\t{document}\t1" for name, (_, document) in made.items()]
    atomic_write(qrels, ("\n".join([HEADER, *rows]) + "\n").encode())
    atomic_write(data / QUERIES, others + new)


def _query_line(name: str, text: str, origin: Origin) -> bytes:
    return orjson.dumps({"_id": name, "text": text, "origin": origin}) + b"\n"
