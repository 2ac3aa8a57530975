"""A query for each of a sample of documents, written beside the queries that people asked."""

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from taugate.errors import InputError
from taugate.ingestion.dataset.beir import CORPUS, text_and_title
from taugate.ingestion.dataset.editing import NewQuery, QueryFile, replace_queries
from taugate.ingestion.dataset.judgements import GENERATED, Judgement, JudgementLine
from taugate.ingestion.dataset.lines import read_objects, required_id
from taugate.ingestion.dataset.lock import sole_writer
from taugate.ingestion.queries.accounting import Losses, keep_accounting
from taugate.ingestion.queries.crop import crop, sampling_key

# Enough for an accuracy to within three points: 1.96 · √(.25 / 1000) = .031.
MAX_QUERIES = 1000


class Source(NamedTuple):
    """A document that a query is made from.

    Attributes:
        key: Its place in the sample, negative so that a heap drops the highest.
        identifier: Its id.
        text: Without title.
        title: Empty where it has none.
    """

    key: int
    identifier: str
    text: str
    title: str


@dataclass
class GeneratedQueries:
    """What came of making queries.

    Attributes:
        kept: Number of queries written.
        lost: Documents that gave none.
        documents: Passages of the corpus.
    """

    kept: int = 0
    lost: Losses = field(default_factory=Losses)
    documents: int = 0


def generate_crops(data: Path, most: int, seed: int) -> GeneratedQueries:
    """Crop a query from each document of a seeded sample, and write queries and judgements into the data set.

    A query's only relevant passage is the one that it was cropped from. Crops of an earlier run are replaced; every
    other query keeps its line, byte for byte. Killed at any moment, the data set can be read and is complete.

    Args:
        data: Folder of the data set.
        most: Number of documents that are sampled.
        seed: Of sample and crops.

    Raises:
        InputError: Where the corpus cannot be read or gives no query; then nothing is written.
    """
    check_request(data, most)
    with sole_writer(data):
        result = GeneratedQueries()
        sources, result.documents = sample_documents(data / CORPUS, most, seed)
        before = QueryFile.read(data)
        earlier = before.texts("crop")
        made = _crops(sources, seed, before.texts(other_than="crop"), result)
        if not made:
            raise InputError(f"{data / CORPUS}: {_nothing_kept(result.lost)}")
        queries = {name: NewQuery(text, "crop") for name, (text, _) in made.items()}
        judgements = [JudgementLine(name, document, Judgement(1)) for name, (_, document) in made.items()]
        replace_queries(data, GENERATED, before, queries, judgements, gone=earlier)
        keep_accounting(data, "crop", result.kept, result.lost)
    return result


def check_request(data: Path, most: int) -> None:
    """Check what was asked for before anything is read.

    Args:
        data: Folder of the data set.
        most: Number of documents that are sampled.

    Raises:
        InputError: .
    """
    if most < 1:
        raise InputError(f"--max {most}: give a number of documents, 1 or more")
    if not data.is_dir():
        raise InputError(f"{data}: no such directory; give the folder that holds {CORPUS}")


def _nothing_kept(lost: Losses) -> str:
    if lost.duplicate:
        return "every crop repeats another query; add documents that differ"
    return "no document is long enough to crop a query from; add longer ones"


def sample_documents(corpus: Path, most: int, seed: int) -> tuple[list[Source], int]:
    """Draw a sample of documents, the same for the same seed in whatever order they stand.

    Args:
        corpus: Path of corpus.jsonl.
        most: How many.
        seed: Of the sample.

    Returns:
        Them in the order of the corpus, and how many documents the corpus has.

    Raises:
        InputError: .
        LineError: .
    """
    chosen: list[tuple[int, int, Source]] = []
    seen: dict[str, int] = {}
    empty = 0
    for position, (line, record) in enumerate(read_objects(corpus)):
        identifier = required_id(corpus, line, record, seen)
        text, title = text_and_title(corpus, line, record)
        if not text:
            empty += 1
            continue
        source = Source(-sampling_key(identifier, seed), identifier, text, title or "")
        push = heapq.heappush if len(chosen) < most else heapq.heappushpop
        push(chosen, (source.key, position, source))
    return [source for _, _, source in sorted(chosen, key=lambda each: each[1])], len(seen) - empty


def _crops(
    sources: list[Source], seed: int, others: Mapping[str, str], result: GeneratedQueries
) -> dict[str, tuple[str, str]]:
    """Return, by the id of each query, its text and the id of its document; what is lost is counted.

    Args:
        others: Texts of the other queries, by id.
    """
    made: dict[str, tuple[str, str]] = {}
    seen = {normalized(text) for text in others.values()}
    for source in sources:
        text = crop(source.text, source.identifier, seed)
        if not text:
            result.lost.empty += 1
        elif normalized(text) in seen:
            result.lost.duplicate += 1
        else:
            seen.add(normalized(text))
            made[free_id(f"crop:{source.identifier}", others, made)] = text, source.identifier
    result.kept = len(made)
    return made


def free_id(wanted: str, *taken: Collection[str]) -> str:
    """Return an id for a query: the wanted one, with as many primes after it as make it free.

    Args:
        taken: Ids in use.
    """
    while any(wanted in each for each in taken):
        wanted += "'"
    return wanted


def normalized(text: str) -> str:
    """Return a text in lower case with single spaces: queries that are equal in this form are duplicates."""
    return " ".join(text.casefold().split())
