"""Generated queries: one for each of a sample of documents, such as crops, written beside those by people.

Crops are those of "Unsupervised Domain Adaption for Neural Information Retrieval" (section 3, Table 1), Contriever's
(Izacard et al. 2022) with the defaults of its code: a span of 10 % to 50 % of a document's words, at any position, then
each word deleted with a probability of 10 %. generated.json, which records copy, has the numbers of generated and
rejected queries by reason.
"""

import hashlib
import heapq
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import regex
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from taugate.data.corpus import CORPUS, text_and_title
from taugate.data.judgements import GENERATED, Judgement, JudgementLine
from taugate.data.lines import read_objects, required_id
from taugate.data.queries import DatasetQuery, Origin, QueryFile, check_folder, replace_queries, sole_writer
from taugate.errors import InputError
from taugate.retrieval.index.words import UNSPACED
from taugate.storage.files import atomic_write, read_bounded

SHORTEST, LONGEST = 0.1, 0.5  # of a span, as shares of the document's words
DELETED = 0.1  # probability that a word of the span is deleted
# In scripts without spaces, letters with the marks on them stand for words, as in the vocabularies of most encoders.
_WORD = regex.compile(rf"(?V1){UNSPACED}\p{{M}}*|(?:(?!{UNSPACED})\S)+")

_SPACE = regex.compile(r"\s")

FILE = "generated.json"
_MAX_BYTES = 1 << 16

# Enough for an accuracy to within three points: 1.96 · √(.25 / 1000) = .031.
MAX_QUERIES = 1000


def crop(text: str, identifier: str, seed: int, span: tuple[int, int] | None = None) -> str:
    """Crop a query from a document; returns the query; empty if the text is so short that nothing is left."""
    # Each document has random numbers of its own, so that no other document changes its query.
    words = list(_WORD.finditer(text))
    rng = np.random.default_rng(_digest(seed, identifier))
    if span is None:
        length = int(len(words) * rng.uniform(SHORTEST, LONGEST))
    else:
        length = min(int(rng.integers(*span, endpoint=True)), int(len(words) * LONGEST))
    start = int(rng.integers(0, len(words) - length + 1))
    cropped = words[start : start + length]
    kept = [word for word, draw in zip(cropped, rng.random(length), strict=True) if draw >= DELETED]
    # The query has a space only if the text has one, so that Chinese letters are not separated.
    spaces = [_SPACE.search(text, word.end(), following.start()) is not None for word, following in pairwise(kept)]
    return "".join(
        f" {word.group()}" if spaced else word.group() for word, spaced in zip(kept, [False, *spaces], strict=False)
    )


def sampling_key(identifier: str, seed: int) -> int:
    """Return a random number of a document: the lowest ones form a sample that does not depend on order."""
    return _digest(seed, identifier, "sample")


def _digest(seed: int, *names: str) -> int:
    return int.from_bytes(hashlib.sha256("\0".join([str(seed), *names]).encode()).digest()[:16], "big")


@dataclass
class Losses:
    """Number of documents that gave no query, by reason."""

    empty: int = 0  # the document is too short for a crop, or the model wrote nothing
    duplicate: int = 0  # the text repeats another query
    example: int = 0
    not_question: int = 0
    round_trip: int = 0  # a search for the query does not return its document

    def listed(self, reasons: Mapping[str, str]) -> str:
        """Return the numbers with their reasons, for people to read."""
        return ", ".join(f"{count} {reasons[reason]}" for reason, count in asdict(self).items() if count)


class Accounting(BaseModel):
    """One run of a generator."""

    model_config = ConfigDict(frozen=True)

    model: str | None = None  # language model that wrote the queries, None for crops
    kept: int = Field(ge=0)  # number of queries written
    lost: dict[str, int]  # number of documents that gave none, by reason


_FILE = TypeAdapter(dict[Origin, Accounting])


def keep_accounting(data: Path, origin: Origin, kept: int, lost: Losses, model: str | None = None) -> None:
    """Replace the account of a generator; the caller holds `sole_writer`; `kept`: number of queries written."""
    account = Accounting(model=model, kept=kept, lost=asdict(lost))
    accounts: dict[Origin, Accounting] = {**read_accounting(data), origin: account}
    atomic_write(data / FILE, _FILE.dump_json(accounts, indent=2) + b"\n")


def read_accounting(data: Path) -> dict[Origin, Accounting]:
    """Read the last account of each generator, by the origin of its queries."""
    path = data / FILE
    try:
        return _FILE.validate_json(read_bounded(path, _MAX_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        raise InputError(f"{path}: not the account that taugate queries wrote; remove it") from error


class SourceDocument(NamedTuple):
    """A document that a query is made from."""

    key: int  # its rank in the sample, negative so that a heap drops the highest
    identifier: str
    text: str  # text without title
    title: str


@dataclass
class GeneratedQueries:
    """Result of generating queries."""

    kept: int = 0
    lost: Losses = field(default_factory=Losses)  # number of documents that gave none, by reason
    documents: int = 0  # number of passages in the corpus

    def sentence(self, data: Path) -> str:
        """Return the result of cropping as a sentence for people to read."""
        lost = self.lost.listed({"empty": "too short", "duplicate": "with the same words as another query"})
        sampled = self.kept + sum(asdict(self.lost).values())
        source = f"its {sampled:,}" if sampled == self.documents else f"{sampled:,} of its {self.documents:,}"
        return (
            f"{data} has {self.kept:,} queries cropped from {source} passages"
            f"{'; passages without a query: ' + lost if lost else ''}"
        )


def generate_crops(data: Path, max_documents: int, seed: int, share: float = 1.0) -> GeneratedQueries:
    """Crop a query from each document of a seeded sample, and write queries and judgements into the data set."""
    # A query's only relevant passage is the one that it was cropped from. Crops of an earlier run are replaced; every
    # other query keeps its line, byte for byte. If the process is killed at any moment, the data set can be read and is
    # complete.
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
    """Check the arguments before anything is read."""
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
    """Draw a sample of documents that depends on the seed, but not on their order."""
    # Returns the sample in the order of the corpus, and the number of documents in the corpus.
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
    """Return the text and the document id of each crop, by query id, and count the documents without one."""
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
    """Return an id that is not in use: the preferred one, followed by as many primes as needed."""
    while any(preferred in ids for ids in taken):
        preferred += "'"
    return preferred


def normalized(text: str) -> str:
    """Return a text in lower case with single spaces; queries that are equal in this form are duplicates."""
    return " ".join(text.casefold().split())
