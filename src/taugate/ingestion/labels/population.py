"""The queries that a sample to judge is drawn from: what people asked, in the data set or in a query log."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from taugate.drift.observations import hashed
from taugate.drift.query_log import LoggedQuery, read_query_log
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import PEOPLE, Origin
from taugate.ingestion.dataset.editing import QueryFile
from taugate.retrieval.documents.visible_text import has_visible_text


class Candidate(NamedTuple):
    """A query that may be judged.

    Attributes:
        id: Its `_id`.
        text: What is asked.
        origin: Who asked it.
        new: Whether queries.jsonl does not have it yet.
    """

    id: str
    text: str
    origin: Origin
    new: bool = False


@dataclass(frozen=True)
class Population:
    """The queries of which a sample is judged.

    Attributes:
        queries: Each once.
        remarks: What the user should know about them, a sentence each.
    """

    queries: list[Candidate]
    remarks: list[str]


def logged(logs: Sequence[Path], collection: str) -> Population:
    """Return the different texts that users asked, in the order in which they first did.

    Left out are queries of other collections, those within a filter, which the threshold does not promise anything
    about, and those of which the log has only a hash.

    Args:
        logs: Files of the service.
        collection: Name of the data set.

    Raises:
        InputError: Where a file is no query log, or no query is left.
    """
    queries: dict[str, Candidate] = {}
    left_out = Counter[str]()
    for line in read_query_log(logs):
        record = line.record
        if not isinstance(record, LoggedQuery):
            continue
        if record.collection != collection:
            left_out["of another collection"] += 1
        elif record.filtered:
            left_out["within a filter"] += 1
        elif record.unreadable:
            left_out["that the encoder cannot read"] += 1
        elif not record.has_text:
            left_out["without a text"] += 1
        elif has_visible_text(record.query):
            name = f"traffic:{hashed(record.query)}"
            queries.setdefault(record.query, Candidate(name, record.query, "traffic", new=True))
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)
    hint = "; TAUGATE_QUERY_LOG_TEXTS=true logs texts from now on" if left_out["without a text"] else ""
    names = ", ".join(map(str, logs))
    if logs and not queries:
        raise InputError(f"{names}: no query that can be judged{f' ({reasons})' if reasons else ''}{hint}")
    return Population([*queries.values()], [f"{names}: left out {reasons}{hint}"] if reasons else [])


def population(data: Path, judged: Collection[str], asked: Population) -> Population:
    """Collect the queries that people asked and nobody judged; generated queries only where there are no others.

    Args:
        data: Folder of the data set.
        judged: Ids of queries that are judged already.
        asked: Queries of logs; one whose text the data set has already is left out.

    Raises:
        InputError: Where no query is left.
    """
    known = QueryFile.read(data).lines
    texts = {each.text for each in known}
    human = [Candidate(each.identifier, each.text, each.origin) for each in known if each.origin in PEOPLE]
    left = [each for each in human if each.id not in judged]
    left += [each for each in asked.queries if each.text not in texts]
    if left:
        return Population(left, asked.remarks)
    if human:
        raise InputError(
            f"{data}: all of its {len(human):,} human queries are judged; add new ones, or name a query log with --log"
        )
    generated = [Candidate(each.identifier, each.text, each.origin) for each in known]
    generated = [each for each in generated if each.id not in judged]
    if generated:
        remark = "all queries here are generated, and say little about what people ask; judge queries of a log soon"
        return Population(generated, [remark])
    raise InputError(f"{data}: has no query to judge; add queries that people asked, or name a query log with --log")
