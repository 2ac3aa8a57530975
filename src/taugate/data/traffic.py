"""Judged queries from traffic: users' judgements of the results that the service showed them."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from taugate.data import raters
from taugate.data.corpus import CORPUS
from taugate.data.judgements import GENERATED, HUMAN, TRAFFIC, Judgement, JudgementLine
from taugate.data.lines import read_objects, required_id
from taugate.data.queries import DatasetQuery, QueryFile, check_folder, replace_queries, sole_writer
from taugate.drift.query_log import LoggedJudgement, LoggedQuery, read_query_log
from taugate.errors import InputError
from taugate.retrieval.query import NotComparable

# Reasons why judgements are not used: the name in the result, and the text shown to the user.
REASONS: Mapping[str, str] = {
    "other_collection": "are about another data set (--collection names the one to learn from)",
    "unknown_reply": "are about replies that are in none of the logs; name the log of every replica",
    "hashed": "are about queries that the log holds only as a hash (TAUGATE_QUERY_LOG_TEXTS)",
    NotComparable.FILTERED: "are about filtered replies, which have another top-K",
    NotComparable.UNREADABLE: "are about queries that the encoder cannot read",
    NotComparable.TRUNCATED: "are about queries that are longer than the encoder reads",
    NotComparable.VECTOR: "are about vectors of clients, in place of the encoder's",
    NotComparable.PRECISION: "are about replies by an encoder of another precision than the calibrated one",
    NotComparable.FALLBACK: "are about replies that the second stage did not rank",
    NotComparable.FEWER_RESULTS: "are about replies with fewer results than the calibration's K",
    NotComparable.THRESHOLD: "are about requests with a threshold of their own",
    NotComparable.K: "are about requests for more results than the calibration's K",
    NotComparable.GROUPED: "are about replies grouped by document, which reach further down the list",
    "not_shown": "are about documents that the reply did not show",
    "unknown_document": "are about documents that are no longer in the corpus",
    "outlying_key": "are by keys that judge unlike all others, or about replies to such keys",
    "capped": "exceed the limit per key (--most-by-key)",
    "few_votes": "are about results that too few users judged (--votes)",
    "tied": "are about results with as many votes for as against",
    "unanswerable": "are about queries that queries.jsonl calls unanswerable",
    "no_answer": "are about queries without a relevant result, of which not all results were judged",
}


_SPLIT = re.compile(r"[\w-][\w.-]{0,63}")  # the name of a file


class NothingLearnedError(InputError):
    """The logs can be read, but hold no judgement that can be used."""


@dataclass
class TrafficLabels:
    """Result of learning from logs."""

    queries: int = 0
    judgements: int = 0  # number of rows in the qrels
    # number of judgements in the log that are not used, by the names in REASONS
    left_out: Counter[str] = field(default_factory=Counter)


class _SentReply(NamedTuple):
    """A reply that was sent."""

    reply: str
    key: str | None  # name of the API key, None without keys
    propensities: Mapping[str, float]  # propensity of each result by document, in the order of the reply
    complete: bool  # whether the reply showed all of the top-K

    @property
    def voter(self) -> object:
        return self.key if self.key is not None else ("reply", self.reply)


class _Row(NamedTuple):
    """A judged result: its grade, by majority, and the probability that it was shown and judged."""

    document: str
    grade: int
    probability: float


def learn_from_traffic(
    logs: Sequence[Path],
    data: Path,
    split: str = TRAFFIC,
    *,
    collection: str | None = None,
    max_by_key: int = raters.MAX_BY_KEY,
    votes: int = raters.MIN_VOTES,
) -> TrafficLabels:
    """Write the judgements of users into a data set, as queries of the origin traffic and as a split of qrels.

    Each distinct query counts once, however often it was sent. A query that is in the data set keeps its id and its
    line. Judgements of queries that the logs do not have are kept.

    Args:
        logs: Query logs of the service, version 2, in any order.
        split: Split whose qrels are written.
        collection: Name of the data set in the log, None for that of the folder.
        max_by_key: Maximum number of judgements by one API key.
        votes: Number of users who have to judge a result before it is used.
    """
    if votes < 1 or max_by_key < 1:
        raise InputError("--votes and --most-by-key have to be 1 or more")
    if not _SPLIT.fullmatch(split):
        raise InputError(f"--split {split!r}: use up to 64 letters, digits, dots, hyphens and underscores")
    if split in (HUMAN, GENERATED):
        raise InputError(f"--split {split}: this split holds other judgements; name another split, such as {TRAFFIC}")
    check_folder(data)
    left_out: Counter[str] = Counter()
    with sole_writer(data):
        documents = _document_ids(data / CORPUS)
        traffic = _Traffic.read(logs, collection or data.resolve().name, documents, left_out)
        rows = traffic.rows(max_by_key, votes, left_out)
        before = QueryFile.read(data)
        names = {text: name for name, text in before.texts().items()}
        taken = {query: names.get(text, f"{TRAFFIC}:{query:016x}") for query, text in traffic.texts.items()}
        for query in [query for query in rows if taken[query] in before.unanswerable]:
            left_out["unanswerable"] += len(rows.pop(query))
        if not rows:
            raise NothingLearnedError(f"{', '.join(map(str, logs))}: {_nothing_learned(left_out)}")
        added = {
            taken[query]: DatasetQuery(traffic.texts[query], "traffic")
            for query in rows
            if traffic.texts[query] not in names
        }
        lines = [*_lines({taken[query]: rows_of_query for query, rows_of_query in rows.items()})]
        replace_queries(data, split, before, added, lines)
    return TrafficLabels(len(rows), len(lines), +left_out)  # without the reasons whose count is 0


class _Traffic:
    """Replies and their judgements, by query."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self._sent: dict[int, list[_SentReply]] = defaultdict(list)
        self._queries: dict[str, int] = {}  # by the reply
        # Reasons why replies cannot be used, by their id, and by query and key for judgements that name no reply.
        self._unusable: dict[str | tuple[int, str | None], str] = {}
        self._hashed: set[int] = set()  # queries whose text no log has
        self._votes: list[raters.Opinion] = []

    @classmethod
    def read(cls, logs: Sequence[Path], collection: str, documents: set[str], left_out: Counter[str]) -> "_Traffic":
        """Read the lines of a collection; judgements that cannot be used are counted in `left_out`."""
        traffic = cls()
        judged: list[LoggedJudgement] = []
        for line in read_query_log(logs):
            record = line.record
            if isinstance(record, LoggedJudgement):
                judged.append(record)
            elif reason := _unusable(record, collection):
                traffic._unusable[record.query_id] = traffic._unusable[record.query_key, record.key] = reason
            else:
                traffic._add(record)
        traffic._remove_hashed()
        for judgement in judged:
            reason = traffic._judge(judgement, collection, documents)
            if reason is not None:
                left_out[reason] += 1
        return traffic

    def _add(self, query: LoggedQuery) -> None:
        if query.has_text:
            self.texts[query.query_key] = query.query
        self._queries[query.query_id] = query.query_key
        propensities = {result.id: result.propensity for result in query.shown}
        complete = {*range(1, len(query.topk) + 1)} <= {result.rank for result in query.shown}
        self._sent[query.query_key].append(_SentReply(query.query_id, query.key, propensities, complete))

    def _remove_hashed(self) -> None:
        """Remove queries that are hashes in all logs: an old line may lack a text that a later line has."""
        self._hashed = self._sent.keys() - self.texts.keys()
        for query in self._hashed:
            del self._sent[query]

    def _judge(self, judged: LoggedJudgement, collection: str, documents: set[str]) -> str | None:
        """Add a judgement, or return the reason why it cannot be used."""
        if judged.collection != collection:
            return "other_collection"
        if judged.document_id not in documents:
            return "unknown_document"
        query = judged.query_key if judged.query_id is None else self._queries.get(judged.query_id)
        if query in self._hashed:
            return "hashed"
        replies = [] if query is None else self._sent.get(query, [])
        if judged.query_id is not None:
            replies = [sent for sent in replies if sent.reply == judged.query_id]
            reason = self._unusable.get(judged.query_id)
        else:
            reason = None if query is None else self._unusable.get((query, judged.key))
        showing = [sent for sent in replies if judged.document_id in sent.propensities]
        if judged.query_id is None:
            # The latest reply to this key, or to any key if this one did not send the query itself.
            to_key = [sent for sent in showing if sent.key == judged.key]
            showing = to_key[-1:] or ([] if reason else showing[-1:])
        if query is None or not showing:
            return reason or ("not_shown" if replies else "unknown_reply")
        reply, document = showing[0].reply, judged.document_id
        self._votes.append(raters.Opinion(judged.at, reply, judged.key, query, document, judged.relevant))
        return None

    def rows(self, max_by_key: int, votes: int, left_out: Counter[str]) -> dict[int, list[_Row]]:
        """Return the rows of each judged query; for the parameters see `learn_from_traffic`."""
        believed = self._believed(max_by_key, left_out)
        probabilities = self._judged_by_place(believed)
        by_query: dict[int, dict[str, list[raters.Opinion]]] = defaultdict(lambda: defaultdict(list))
        for vote in believed:
            by_query[vote.query][vote.document].append(vote)
        rows = {}
        for query, by_document in sorted(by_query.items()):
            judged = []
            for document, opinions in sorted(by_document.items()):
                grade = raters.majority(opinions)
                if len({vote.voter for vote in opinions}) < votes:
                    left_out["few_votes"] += len(opinions)
                elif grade is None:
                    left_out["tied"] += len(opinions)
                else:
                    judged.append(_Row(document, int(grade), self._probability(query, document, probabilities, votes)))
            if any(row.grade for row in judged) or self._all_judged(query, judged):
                rows[query] = judged
            else:
                left_out["no_answer"] += sum(len(by_document[row.document]) for row in judged)
        return {query: judged for query, judged in rows.items() if judged}

    def _believed(self, max_by_key: int, left_out: Counter[str]) -> list[raters.Opinion]:
        """Leave out outlying keys with all replies to them, and judgements beyond the limit of a key."""
        distinct = list({(vote.voter, vote.reply, vote.document, vote.relevant): vote for vote in self._votes}.values())
        shown: Counter[str] = Counter()
        for sent in self._all_sent():
            if sent.key is not None:
                shown[sent.key] += len(sent.propensities)
        outlying = raters.outlying_keys(distinct, shown)
        not_believed = {sent.reply for sent in self._all_sent() if sent.key in outlying}
        believed = [vote for vote in distinct if vote.key not in outlying and vote.reply not in not_believed]
        left_out["outlying_key"] += len(distinct) - len(believed)
        for query, replies in self._sent.items():
            self._sent[query] = [sent for sent in replies if sent.key not in outlying]
        taken = raters.limit_by_key(believed, max_by_key)
        left_out["capped"] += len(believed) - len(taken)
        return taken

    def _judged_by_place(self, votes: Sequence[raters.Opinion]) -> Mapping[int, float]:
        """Return the probability that a result is judged, by its place in the reply, from 0."""
        judged = {(vote.reply, vote.document) for vote in votes}
        shown, taken = Counter[int](), Counter[int]()
        for sent in self._all_sent():
            for place, document in enumerate(sent.propensities):
                shown[place] += 1
                taken[place] += (sent.reply, document) in judged
        places = range(max(shown) + 1) if shown else range(0)
        estimated = raters.judged_by_place([shown[place] for place in places], [taken[place] for place in places])
        return dict(enumerate(estimated.tolist()))

    def _probability(self, query: int, document: str, by_place: Mapping[int, float], votes: int) -> float:
        """Return the probability that a result was shown, and judged by enough of the users who saw it."""
        # Whether a result below τ is shown is drawn once for a query and a release, so repeating a query changes
        # nothing.
        # By voter, the probability that none of the replies is judged.
        missed: dict[object, float] = defaultdict(lambda: 1.0)
        propensity = 0.0
        for sent in self._sent[query]:
            if document in sent.propensities:
                propensity = max(propensity, sent.propensities[document])
                missed[sent.voter] *= 1 - by_place[[*sent.propensities].index(document)]
        # There may be fewer requests than judgements, as a reply can be judged with another key.
        return propensity * raters.enough_votes((1 - miss for miss in missed.values()), min(votes, len(missed)))

    def _all_judged(self, query: int, rows: Sequence[_Row]) -> bool:
        judged = {row.document for row in rows}
        return any(sent.complete and sent.propensities.keys() <= judged for sent in self._sent[query])

    def _all_sent(self) -> Iterator[_SentReply]:
        for replies in self._sent.values():
            yield from replies


def _unusable(query: LoggedQuery, collection: str) -> str | None:
    """Return the reason why judgements of a reply cannot be used, None if they can."""
    if query.collection != collection:
        return "other_collection"
    fewer = query.not_comparable is NotComparable.K and query.k < len(query.topk)  # a part of the same list
    return None if fewer or query.not_comparable is None else query.not_comparable.value


def _lines(rows: Mapping[str, Sequence[_Row]]) -> Iterator[JudgementLine]:
    """Yield the lines of the qrels, each with its weight."""
    weights = {name: [*_weights(rows_of_query)] for name, rows_of_query in rows.items()}
    limit = raters.max_weight([_weight_of_query(rows_of_query, weights[name]) for name, rows_of_query in rows.items()])
    for name, rows_of_query in rows.items():
        for row, weight in zip(rows_of_query, weights[name], strict=True):
            yield JudgementLine(name, row.document, Judgement(row.grade, min(weight, limit)))


def _weight_of_query(rows: Sequence[_Row], weights: Sequence[float]) -> float:
    """Return the weight that readers of the rows give their query: the smallest weight of its relevant results."""
    relevant = [weight for row, weight in zip(rows, weights, strict=True) if row.grade]
    return min(relevant or weights)


def _weights(rows: Sequence[_Row]) -> Iterator[float]:
    """Yield the weight of each row, the inverse of its probability."""
    # A query without a relevant result is used only because all of its results were judged: their probabilities are
    # multiplied.
    together = math.prod(row.probability for row in rows)
    answered = any(row.grade for row in rows)
    for row in rows:
        yield 1 / (row.probability if answered else together)


def _document_ids(corpus: Path) -> set[str]:
    seen: dict[str, int] = {}
    for line, record in read_objects(corpus):
        required_id(corpus, line, record, seen)
    return {*seen}


def _nothing_learned(left_out: Counter[str]) -> str:
    if not left_out.total():
        return "holds no judgement; clients send them to /feedback"
    reasons = "; ".join(f"{count} {REASONS[name]}" for name, count in left_out.most_common())
    return f"no judgement can be used: {reasons}"
