"""Generated queries: one for each of a sample of documents, written beside the queries by people."""

import heapq
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from taugate.errors import InputError
from taugate.ingestion.dataset.corpus import CORPUS, text_and_title
from taugate.ingestion.dataset.editing import QueryFile, replace_queries
from taugate.ingestion.dataset.first_lines import check_folder
from taugate.ingestion.dataset.judgements import GENERATED, Judgement, JudgementLine
from taugate.ingestion.dataset.lines import read_objects, required_id
from taugate.ingestion.dataset.lock import sole_writer
from taugate.ingestion.dataset.queries import DatasetQuery
from taugate.ingestion.queries.accounting import Losses, keep_accounting
from taugate.ingestion.queries.crop import crop, sampling_key

# Enough for an accuracy to within three points: 1.96 · √(.25 / 1000) = .031.
MAX_QUERIES = 1000


class SourceDocument(NamedTuple):
    """A document that a query is made from.

    Attributes:
        key: Its rank in the sample, negative so that a heap drops the highest.
        identifier: Id of the document.
        text: Text without title.
        title: Title, or "".
    """

    key: int
    identifier: str
    text: str
    title: str


@dataclass
class GeneratedQueries:
    """Result of generating queries.

    Attributes:
        kept: Number of queries written.
        lost: Number of documents that gave none, by reason.
        documents: Number of passages in the corpus.
    """

    kept: int = 0
    lost: Losses = field(default_factory=Losses)
    documents: int = 0


def generate_crops(data: Path, max_documents: int, seed: int, share: float = 1.0) -> GeneratedQueries:
    """Crop a query from each document of a seeded sample, and write queries and judgements into the data set.

    A query's only relevant passage is the one that it was cropped from. Crops of an earlier run are replaced; every
    other query keeps its line, byte for byte. If the process is killed at any moment, the data set can be read and is
    complete.

    Args:
        data: Folder of the data set.
        max_documents: Number of documents to sample.
        seed: Seed of sample and crops.
        share: Largest share of the chunks of a document, see `sample_documents`.

    Raises:
        InputError: If the corpus cannot be read or gives no query; then nothing is written.
    """
    check_request(data, max_documents)
    with sole_writer(data):
        result = GeneratedQueries()
        sources, result.documents = sample_documents(data / CORPUS, max_documents, seed, share)
        before = QueryFile.read(data)
        earlier = before.texts("crop")
        crops = _crops(sources, seed, before.texts(other_than="crop"), result)
        if not crops:
            raise InputError(f"{data / CORPUS}: {_nothing_kept(result.lost)}")
        queries = {name: DatasetQuery(text, "crop") for name, (text, _) in crops.items()}
        judgements = [JudgementLine(name, document, Judgement(1)) for name, (_, document) in crops.items()]
        replace_queries(data, GENERATED, before, queries, judgements, removed=earlier)
        keep_accounting(data, "crop", result.kept, result.lost)
    return result


def check_request(data: Path, max_documents: int) -> None:
    """Check the arguments before anything is read.

    Args:
        data: Folder of the data set.
        max_documents: Number of documents to sample.

    Raises:
        InputError: If the number is below 1, or the folder does not exist.
    """
    if max_documents < 1:
        raise InputError(f"--max {max_documents}: give a number of documents, 1 or more")
    check_folder(data)


def _nothing_kept(lost: Losses) -> str:
    if lost.duplicate:
        return "every crop repeats another query; add documents that differ"
    return "no document is long enough to crop a query from; add longer ones"


def sample_documents(
    corpus: Path, max_documents: int, seed: int, share: float = 1.0
) -> tuple[list[SourceDocument], int]:
    """Draw a sample of documents that depends on the seed, but not on their order.

    Args:
        corpus: Path of corpus.jsonl.
        max_documents: Size of the sample.
        seed: Seed of the sample.
        share: Largest share of the chunks of a document, rounded up, so that no long document has most of the sample;
            .3 in the diversity paper (§3.1).

    Returns:
        The sample in the order of the corpus, and the number of documents in the corpus.

    Raises:
        InputError: If the corpus cannot be read; LineError if a line is invalid.
    """
    chosen: list[tuple[int, int, SourceDocument]] = []
    seen: dict[str, int] = {}
    empty, allowed = 0, None if share == 1 else _chunks_within(corpus, seed, share)
    for position, (line, record) in enumerate(read_objects(corpus)):
        identifier = required_id(corpus, line, record, seen)
        text, title = text_and_title(corpus, line, record)
        if not text:
            empty += 1
            continue
        if allowed is not None and identifier not in allowed:
            continue
        source = SourceDocument(-sampling_key(identifier, seed), identifier, text, title or "")
        push = heapq.heappush if len(chosen) < max_documents else heapq.heappushpop
        push(chosen, (source.key, position, source))
    sample = [source for _, _, source in sorted(chosen, key=lambda item: item[1])]
    return sample, len(seen) - empty


def _chunks_within(corpus: Path, seed: int, share: float) -> set[str]:
    """Return the ids of a share of each document's chunks, those with the lowest keys."""
    chunks: dict[str, list[tuple[int, str]]] = {}
    seen: dict[str, int] = {}
    for line, record in read_objects(corpus):
        name = required_id(corpus, line, record, seen)
        chunks.setdefault(str(record.get("parent", name)), []).append((sampling_key(name, seed), name))
    return {name for members in chunks.values() for _, name in sorted(members)[: math.ceil(share * len(members))]}


def _crops(
    sources: list[SourceDocument], seed: int, existing: Mapping[str, str], result: GeneratedQueries
) -> dict[str, tuple[str, str]]:
    """Return the text and the document id of each crop, by query id, and count the documents without one.

    Args:
        sources: The sampled documents.
        seed: Seed of the run.
        existing: Texts of the other queries, by id.
        result: Receives the counts.
    """
    crops: dict[str, tuple[str, str]] = {}
    seen = {normalized(text) for text in existing.values()}
    for source in sources:
        text = crop(source.text, source.identifier, seed)
        if not text:
            result.lost.empty += 1
        elif normalized(text) in seen:
            result.lost.duplicate += 1
        else:
            seen.add(normalized(text))
            crops[free_id(f"crop:{source.identifier}", existing, crops)] = text, source.identifier
    result.kept = len(crops)
    return crops


def free_id(preferred: str, *taken: Collection[str]) -> str:
    """Return an id that is not in use: the preferred one, followed by as many primes as needed.

    Args:
        preferred: Id to start from.
        taken: Collections of ids in use.
    """
    while any(preferred in ids for ids in taken):
        preferred += "'"
    return preferred


def normalized(text: str) -> str:
    """Return a text in lower case with single spaces; queries that are equal in this form are duplicates."""
    return " ".join(text.casefold().split())
