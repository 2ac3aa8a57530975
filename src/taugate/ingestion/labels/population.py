"""The queries that a sample to judge is drawn from: queries by people, in the data set or in a query log."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from taugate.drift.observations import hashed
from taugate.drift.query_log import LoggedQuery, read_query_log
from taugate.errors import InputError
from taugate.ingestion.dataset.editing import QueryFile
from taugate.ingestion.dataset.queries import PEOPLE, Origin
from taugate.retrieval.comparability import NotComparable
from taugate.retrieval.documents.visible_text import has_visible_text

_LEFT_OUT: Mapping[NotComparable | None, str] = {
    NotComparable.FILTERED: "within a filter",
    NotComparable.UNREADABLE: "that the encoder cannot read",
}


class PopulationQuery(BaseModel):
    """A query that may be judged.

    Attributes:
        id: Its `_id`.
        text: Text of the query.
        origin: Source of the query.
        new: Whether queries.jsonl does not have it yet.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    text: str
    origin: Origin
    new: bool


@dataclass(frozen=True)
class Population:
    """The queries that a sample is drawn from.

    Attributes:
        queries: Distinct queries.
        remarks: Messages for the user about them, a sentence each.
    """

    queries: list[PopulationQuery]
    remarks: list[str]


def logged(logs: Sequence[Path], collection: str) -> Population:
    """Return the distinct texts of logged queries, in the order of their first appearance.

    Left out are queries of other collections, filtered queries, which the threshold does not cover, and queries of
    which the log has only a hash.

    Args:
        logs: Query logs of the service.
        collection: Name of the data set.

    Raises:
        InputError: If a file is not a query log, or no query is left.
    """
    queries: dict[str, PopulationQuery] = {}
    left_out = Counter[str]()
    for line in read_query_log(logs):
        record = line.record
        if not isinstance(record, LoggedQuery):
            continue
        if record.collection != collection:
            left_out["of another collection"] += 1
        elif reason := _LEFT_OUT.get(record.not_comparable):
            left_out[reason] += 1
        elif not record.has_text:
            left_out["without a text"] += 1
        elif has_visible_text(record.query):
            name = f"traffic:{hashed(record.query)}"
            queries.setdefault(record.query, PopulationQuery(id=name, text=record.query, origin="traffic", new=True))
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)
    hint = "; TAUGATE_QUERY_LOG_TEXTS=true logs texts from now on" if left_out["without a text"] else ""
    names = ", ".join(map(str, logs))
    if logs and not queries:
        raise InputError(f"{names}: no query that can be judged{f' ({reasons})' if reasons else ''}{hint}")
    return Population([*queries.values()], [f"{names}: left out {reasons}{hint}"] if reasons else [])


def population(data: Path, judged: Collection[str], logged_queries: Population) -> Population:
    """Collect the unjudged queries by people; generated queries are used only if there are no queries by people.

    Queries that queries.jsonl calls unanswerable need no judgement.

    Args:
        data: Folder of the data set.
        judged: Ids of queries that have been judged.
        logged_queries: Queries of logs; those whose text is in the data set are left out.

    Raises:
        InputError: If no query is left.
    """
    before = QueryFile.read(data)
    texts = set(before.texts().values())
    answerable = [
        PopulationQuery(id=name, text=query.text, origin=query.origin, new=False)
        for name, query in before.queries.items()
        if query.answerable
    ]
    human = [query for query in answerable if query.origin in PEOPLE]
    left = [query for query in human if query.id not in judged]
    left += [query for query in logged_queries.queries if query.text not in texts]
    if left:
        return Population(left, logged_queries.remarks)
    if human:
        raise InputError(
            f"{data}: all of its {len(human):,} human queries are judged; add new ones, or name a query log with --log"
        )
    generated = [query for query in answerable if query.id not in judged]
    if generated:
        remark = "all queries are generated, and say little about real queries; judge queries of a log soon"
        return Population(generated, [remark])
    raise InputError(f"{data}: has no query to judge; add queries by people, or name a query log with --log")
