"""The queries by people that a sample to judge is drawn from, and the results that a judge is asked about."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from taugate.data.queries import PEOPLE, Origin, QueryFile
from taugate.drift.observations import hashed
from taugate.drift.query_log import LoggedQuery, read_query_log
from taugate.errors import InputError
from taugate.policy.policy import POLICIES
from taugate.retrieval.documents.store import Document
from taugate.retrieval.documents.visible_text import has_visible_text
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.words import query_terms
from taugate.retrieval.query import NotComparable
from taugate.retrieval.reader import Release

_LEFT_OUT: Mapping[NotComparable | None, str] = {
    NotComparable.FILTERED: "within a filter",
    NotComparable.UNREADABLE: "that the encoder cannot read",
}

Float64 = NDArray[np.float64]
_AT_ONCE = 256  # queries whose similarities to every document are in memory together
MAX_OTHERS = 5  # passages shown if a query has no relevant result


class PopulationQuery(BaseModel):
    """A query that may be judged."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    text: str
    origin: Origin
    new: bool


@dataclass(frozen=True)
class Population:
    """The queries that a sample is drawn from."""

    queries: list[PopulationQuery]
    remarks: list[str]


def logged(logs: Sequence[Path], collection: str) -> Population:
    """Return the distinct texts of logged queries, in the order of their first appearance.

    Left out are queries of other collections, filtered queries, which the threshold does not cover, and queries of
    which the log has only a hash.
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
        logged_queries: Queries of logs; those whose text is in the data set are left out.
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


@dataclass(frozen=True)
class Results:
    """The results of q queries before the threshold is applied, K of each, best first.

    Attributes:
        positions: (q, K) int64 positions of the documents.
        decisions: (q, K) float32 values that the policy compares with τ.
        relevance: (q, K) float64 probability that each result is relevant; None if the release has no relevance model.
    """

    positions: NDArray[np.int64]
    decisions: NDArray[np.float32]
    relevance: Float64 | None


def search_uncut(release: Release, texts: Sequence[str]) -> Results:
    """Search for queries as the service does, without applying the threshold."""
    retriever, policy = release.retriever, release.retriever.policy
    positions, decisions, relevances = [], [], []
    for start in range(0, len(texts), _AT_ONCE):
        vectors = retriever.encode(texts[start : start + _AT_ONCE])
        top = retriever.index.search(vectors, policy.k)
        relevance = None if retriever.relevance is None else retriever.relevance.estimate(vectors, top)
        positions.append(top.positions)
        decisions.append(POLICIES[policy.kind].decide(top.scores, relevance))
        if relevance is not None:
            relevances.append(relevance.astype(np.float64))
    return Results(
        np.concatenate(positions), np.concatenate(decisions), np.concatenate(relevances) if relevances else None
    )


def lexical_candidates(
    documents: Iterable[Document], texts: Sequence[str], positions: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return the positions of documents that share the query's words, and that the search does not return.

    A judge who sees only results of one system never learns what it misses. TREC therefore judges the pooled results of
    several systems (Spärck Jones and van Rijsbergen, British Library Report 5266, 1975); here the other system is BM25.

    Returns:
        Up to MAX_OTHERS documents per query, best first; documents without any of its words are left out.
    """
    lexical = LexicalIndex.of(document.encoded_text for document in documents)
    candidates = []
    for text, returned in zip(texts, positions, strict=True):
        scores = lexical.term_scores(query_terms(text)).scores
        scores[[*returned]] = 0
        best = np.argsort(-scores, kind="stable")[:MAX_OTHERS]
        candidates.append([int(position) for position in best if scores[position] > 0])
    return candidates
