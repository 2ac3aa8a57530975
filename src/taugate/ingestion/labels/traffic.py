"""Labelled queries from judged traffic: what users said of the results that the service showed them."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from taugate.drift.query_log import LoggedJudgement, LoggedQuery, read_query_log
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import CORPUS
from taugate.ingestion.dataset.editing import NewQuery, QueryFile, replace_queries
from taugate.ingestion.dataset.judgements import GENERATED, HUMAN, TRAFFIC, Judgement, JudgementLine
from taugate.ingestion.dataset.lines import read_objects, required_id
from taugate.ingestion.dataset.lock import sole_writer
from taugate.ingestion.labels.propensities import enough_votes, judged_by_place, most_weight
from taugate.ingestion.labels.raters import MAX_BY_KEY, MIN_VOTES, Vote, limit_by_key, majority, outlying_keys

# Why judgements become no labels: the name in the result, and the sentence for people.
REASONS: Mapping[str, str] = {
    "other_collection": "are about another data set (--collection names the one to learn from)",
    "unknown_reply": "are about a reply that none of the logs has; name the log of every replica",
    "hashed": "are about queries of which the log has only the hash (TAUGATE_QUERY_LOG_TEXTS)",
    "filtered": "are about replies within a filter, which has a top-K of its own",
    "threshold": "are about requests with a threshold of their own",
    "grouped": "are about replies grouped by document, which reach further down the list",
    "not_shown": "are about documents that the reply did not show",
    "unknown_document": "are about documents that the corpus no longer has",
    "outlying_key": "are by keys that judge unlike all others, or of replies to such keys",
    "capped": "are beyond the limit of their key (--most-by-key)",
    "few_votes": "are about results that too few users judged (--votes)",
    "tied": "are about results that as many users call relevant as not",
    "no_answer": "are about queries without a relevant result, of which not all were judged",
}


_SPLIT = re.compile(r"[\w-][\w.-]{0,63}")  # the name of a file


class NothingLearnedError(InputError):
    """Logs that can be read, and in which no judgement becomes a label."""


@dataclass
class TrafficLabels:
    """What became of a log.

    Attributes:
        queries: How many have labels.
        judgements: Rows of the qrels.
        left_out: Judgements in the log that became no label, by the names in REASONS.
    """

    queries: int = 0
    judgements: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


class _Ask(NamedTuple):
    """A reply that was sent.

    Attributes:
        key: Name of the API key, None without keys.
        propensities: Of the results, by document, in the order of the reply.
        complete: Whether the reply showed all of the top-K.
    """

    reply: str
    key: str | None
    propensities: Mapping[str, float]
    complete: bool

    @property
    def voter(self) -> object:
        return self.key if self.key is not None else ("reply", self.reply)


class _Row(NamedTuple):
    """A result that was judged: its grade, by majority, and the probability that it was shown and judged."""

    document: str
    grade: int
    probability: float


def learn_from_traffic(
    logs: Sequence[Path],
    data: Path,
    split: str = TRAFFIC,
    *,
    collection: str | None = None,
    most_by_key: int = MAX_BY_KEY,
    votes: int = MIN_VOTES,
) -> TrafficLabels:
    """Write the judgements of users into a data set, as queries of the origin traffic and as a split of qrels.

    Each different query counts once, however often it was asked. A query that the data set has already keeps its id
    and its line. Labels of queries that the logs do not have stay.

    Args:
        logs: Query logs of the service, version 2, in any order.
        data: Folder of the data set.
        split: Whose qrels are written.
        collection: Name of the data set in the log, None for that of the folder.
        most_by_key: Judgements of one API key that are taken.
        votes: Users who have to judge a result before it is a label.

    Raises:
        InputError: Where a log or the data set cannot be read or an argument is wrong, NothingLearnedError where no
            judgement becomes a label; nothing is written then.
    """
    if votes < 1 or most_by_key < 1:
        raise InputError("--votes and --most-by-key have to be 1 or more")
    if not _SPLIT.fullmatch(split):
        raise InputError(f"--split {split!r}: use up to 64 letters, digits, dots, hyphens and underscores")
    if split in (HUMAN, GENERATED):
        raise InputError(f"--split {split}: its judgements come from elsewhere; name another split, such as {TRAFFIC}")
    if not data.is_dir():
        raise InputError(f"{data}: no such directory; give the folder that holds {CORPUS}")
    left_out: Counter[str] = Counter()
    with sole_writer(data):
        documents = _document_ids(data / CORPUS)
        traffic = _Traffic.read(logs, collection or data.resolve().name, documents, left_out)
        rows = traffic.labels(most_by_key, votes, left_out)
        if not rows:
            raise NothingLearnedError(f"{', '.join(map(str, logs))}: {_nothing_learned(left_out)}")
        before = QueryFile.read(data)
        names = {text: name for name, text in before.texts().items()}
        taken = {query: names.get(text, f"{TRAFFIC}:{query:016x}") for query, text in traffic.texts.items()}
        made = {
            taken[query]: NewQuery(traffic.texts[query], "traffic")
            for query in rows
            if traffic.texts[query] not in names
        }
        lines = [*_lines({taken[query]: each for query, each in rows.items()})]
        replace_queries(data, split, before, made, lines)
    return TrafficLabels(len(rows), len(lines), +left_out)  # without the reasons that nothing had


class _Traffic:
    """Replies and the judgements of them, by query.

    texts: of the queries, by the key of the text.
    """

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self._asks: dict[int, list[_Ask]] = defaultdict(list)
        self._queries: dict[str, int] = {}  # by the reply
        # Why replies cannot be learned from, by their id, and by query and key for judgements that name no reply.
        self._unusable: dict[str | tuple[int, str | None], str] = {}
        self._hashed: set[int] = set()  # queries whose text no log has
        self._votes: list[Vote] = []

    @classmethod
    def read(cls, logs: Sequence[Path], collection: str, documents: set[str], left_out: Counter[str]) -> "_Traffic":
        """Read the lines of a collection; the parameters are those of `learn_from_traffic`, the others are counted."""
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
        traffic._set_hashed_apart()
        for each in judged:
            reason = traffic._judge(each, collection, documents)
            if reason is not None:
                left_out[reason] += 1
        return traffic

    def _add(self, query: LoggedQuery) -> None:
        if query.has_text:
            self.texts[query.query_key] = query.query
        self._queries[query.query_id] = query.query_key
        propensities = {each.id: each.propensity for each in query.shown}
        complete = {*range(1, len(query.topk) + 1)} <= {each.rank for each in query.shown}
        self._asks[query.query_key].append(_Ask(query.query_id, query.key, propensities, complete))

    def _set_hashed_apart(self) -> None:
        """Leave out queries that are hashes wherever they stand: an old line may have lost a text that a later has."""
        self._hashed = self._asks.keys() - self.texts.keys()
        for query in self._hashed:
            del self._asks[query]

    def _judge(self, judged: LoggedJudgement, collection: str, documents: set[str]) -> str | None:
        """Take a judgement, or return the reason against it."""
        if judged.collection != collection:
            return "other_collection"
        if judged.document_id not in documents:
            return "unknown_document"
        query = judged.query_key if judged.query_id is None else self._queries.get(judged.query_id)
        if query in self._hashed:
            return "hashed"
        asks = [] if query is None else self._asks.get(query, [])
        if judged.query_id is not None:
            asks = [ask for ask in asks if ask.reply == judged.query_id]
            why_not = self._unusable.get(judged.query_id)
        else:
            why_not = None if query is None else self._unusable.get((query, judged.key))
        found = [ask for ask in asks if judged.document_id in ask.propensities]
        if judged.query_id is None:  # the latest reply to that key; to any, where the key asked nothing else by itself
            own = [ask for ask in found if ask.key == judged.key]
            found = own[-1:] or ([] if why_not else found[-1:])
        if query is None or not found:
            return why_not or ("not_shown" if asks else "unknown_reply")
        self._votes.append(Vote(judged.at, found[0].reply, judged.key, query, judged.document_id, judged.relevant))
        return None

    def labels(self, most_by_key: int, votes: int, left_out: Counter[str]) -> dict[int, list[_Row]]:
        """Return the rows of each query that has labels; for the parameters see `learn_from_traffic`."""
        believed = self._believed(most_by_key, left_out)
        probabilities = self._judged_by_place(believed)
        by_query: dict[int, dict[str, list[Vote]]] = defaultdict(lambda: defaultdict(list))
        for vote in believed:
            by_query[vote.query][vote.document].append(vote)
        rows = {}
        for query, by_document in sorted(by_query.items()):
            found = []
            for document, each in sorted(by_document.items()):
                grade = majority(each)
                if len({vote.voter for vote in each}) < votes:
                    left_out["few_votes"] += len(each)
                elif grade is None:
                    left_out["tied"] += len(each)
                else:
                    found.append(_Row(document, int(grade), self._probability(query, document, probabilities, votes)))
            if any(row.grade for row in found) or self._all_judged(query, found):
                rows[query] = found
            else:
                left_out["no_answer"] += sum(len(by_document[row.document]) for row in found)
        return {query: found for query, found in rows.items() if found}

    def _believed(self, most_by_key: int, left_out: Counter[str]) -> list[Vote]:
        """Leave out outlying keys with all that they were shown, and what is beyond the limit of a key."""
        each_once = list(
            {(vote.voter, vote.reply, vote.document, vote.relevant): vote for vote in self._votes}.values()
        )
        shown: Counter[str] = Counter()
        for ask in self._all_asks():
            if ask.key is not None:
                shown[ask.key] += len(ask.propensities)
        outlying = outlying_keys(each_once, shown)
        not_believed = {ask.reply for ask in self._all_asks() if ask.key in outlying}
        believed = [vote for vote in each_once if vote.key not in outlying and vote.reply not in not_believed]
        left_out["outlying_key"] += len(each_once) - len(believed)
        for query, asks in self._asks.items():
            self._asks[query] = [ask for ask in asks if ask.key not in outlying]
        taken = limit_by_key(believed, most_by_key)
        left_out["capped"] += len(believed) - len(taken)
        return taken

    def _judged_by_place(self, votes: Sequence[Vote]) -> Mapping[int, float]:
        """Return the probability that a result is judged, by its place in the reply, from 0."""
        judged = {(vote.reply, vote.document) for vote in votes}
        shown, taken = Counter[int](), Counter[int]()
        for ask in self._all_asks():
            for place, document in enumerate(ask.propensities):
                shown[place] += 1
                taken[place] += (ask.reply, document) in judged
        places = range(max(shown) + 1) if shown else range(0)
        estimated = judged_by_place([shown[each] for each in places], [taken[each] for each in places])
        return dict(enumerate(estimated.tolist()))

    def _probability(self, query: int, document: str, by_place: Mapping[int, float], votes: int) -> float:
        """Return the probability that a result was shown, and judged by enough of those who saw it.

        Whether a result below τ is shown is drawn once for a query and a release, so that asking again changes nothing.
        """
        missed: dict[object, float] = defaultdict(lambda: 1.0)  # by voter: that none of the replies is judged
        propensity = 0.0
        for ask in self._asks[query]:
            if document in ask.propensities:
                propensity = max(propensity, ask.propensities[document])
                missed[ask.voter] *= 1 - by_place[[*ask.propensities].index(document)]
        # Fewer may have asked than judged: a reply can be judged with another key.
        return propensity * enough_votes((1 - each for each in missed.values()), min(votes, len(missed)))

    def _all_judged(self, query: int, rows: Sequence[_Row]) -> bool:
        judged = {row.document for row in rows}
        return any(ask.complete and ask.propensities.keys() <= judged for ask in self._asks[query])

    def _all_asks(self) -> Iterator[_Ask]:
        for asks in self._asks.values():
            yield from asks


def _unusable(query: LoggedQuery, collection: str) -> str | None:
    """Return why judgements of a reply cannot become labels, None where they can."""
    if query.collection != collection:
        return "other_collection"
    if query.filtered:
        return "filtered"
    if query.threshold is not None:
        return "threshold"
    return "grouped" if query.group_by is not None else None


def _lines(rows: Mapping[str, Sequence[_Row]]) -> Iterator[JudgementLine]:
    """Yield the lines of the qrels, each with its weight."""
    weights = {name: [*_weights(each)] for name, each in rows.items()}
    most = most_weight([_weight_of_query(each, weights[name]) for name, each in rows.items()])
    for name, each in rows.items():
        for row, weight in zip(each, weights[name], strict=True):
            yield JudgementLine(name, row.document, Judgement(row.grade, min(weight, most)))


def _weight_of_query(rows: Sequence[_Row], weights: Sequence[float]) -> float:
    """Return the weight that whoever reads the rows gives their query: the smallest of its relevant results."""
    relevant = [weight for row, weight in zip(rows, weights, strict=True) if row.grade]
    return min(relevant or weights)


def _weights(rows: Sequence[_Row]) -> Iterator[float]:
    """Yield the weight of each row, the inverse of its probability.

    A query without a relevant result is there only because all of its results were judged: their probabilities are
    multiplied.
    """
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
        return "no judgement; users send them to /feedback"
    reasons = "; ".join(f"{count} {REASONS[name]}" for name, count in left_out.most_common())
    return f"no judgement became a label: {reasons}"
