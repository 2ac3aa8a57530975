"""Reads a run: the results of a retriever for many queries, with their scores, and joins it with its qrels.

A run is a TREC file (`query Q0 document rank score tag`) or JSON Lines, plain or packed with gzip:

    {"query_id": "q1", "query": "…", "results": [{"id": "d7", "score": 0.71, "scores": {"bm25": 12.3}}]}

Results are listed best first. The text of the query and the further scores of a result may be missing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.data.judgements import HEADER, NO_DOCUMENT, WEIGHTED_HEADER, JudgementLine, parse_header, parse_judgement
from taugate.data.labelled_queries import LabelledQueries, LabelledQuery
from taugate.data.lines import LineError, read_lines, read_objects, required_text, stored_file
from taugate.data.queries import Origin, read_origin
from taugate.data.runs.search_request import finite_number
from taugate.errors import InputError
from taugate.policy.arrays import Float32
from taugate.policy.score_relevance import SCALES, ScoreScale
from taugate.storage.files import Json, sha256_file

_MISSING = "give a TREC run, or JSON Lines with query_id and results"
_TREC = "query Q0 document rank score tag"

_JUDGED_RUN_MISSING = "give the qrels of the run's queries, BEIR (.tsv with a header) or TREC"
# A run does not tell how many documents there are. Advice on further labels assumes so many without a label for each
# labelled query, as in a collection that is large beside its labels.
_UNLABELLED_FOR_EACH = 100


@dataclass(frozen=True)
class RunQuery:
    """A query with its w results, best first."""

    id: str
    text: str | None  # text of the query; None if the run does not have it
    origin: Origin
    line: int
    documents: NDArray[np.int64]  # (w,) int64, numbers of the documents
    scores: Float32  # (w,) float32, higher is better: distances are negative
    # further scores of the results by name, (w,) float32 each, NaN for a result without the score
    components: Mapping[str, Float32]

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True)
class Run:
    """The results of a retriever."""

    name: str  # tag of a TREC run, else the name of the file
    path: Path
    scale: ScoreScale
    numbers: Mapping[str, int]  # numbers of documents by id, from 0, in the order of the file
    queries: Mapping[str, RunQuery]  # the queries by id, in the order of the file
    sha256: str

    @classmethod
    def read(cls, path: Path, scale: ScoreScale = "similarity", *, ordered: bool = True) -> Self:
        """Read a run; `scale`: what the scores are. Results are listed by falling score, or by rising distance."""
        path = stored_file(path)
        builder = _Builder(path, scale, ordered=ordered)
        first = next((text for _, text in read_lines(path, _MISSING) if text.strip()), "")
        name = path.name.removesuffix(".gz").rsplit(".", 1)[0]
        if first.lstrip().startswith("{"):
            for line, record in read_objects(path, _MISSING):
                builder.add_object(line, record)
        else:
            for line, text in read_lines(path, _MISSING):
                name = builder.add_trec(line, text)
        if not builder.queries:
            raise InputError(f"{path}: has no query; {_MISSING}")
        queries = {query.id: query for query in builder.built()}
        return cls(name, path, scale, builder.numbers, queries, sha256_file(path))


@dataclass
class _Results:
    """The results of a query, while they are read."""

    line: int
    text: str | None = None
    origin: Origin = "human"
    numbers: dict[int, None] = field(default_factory=dict)  # keeps the order
    scores: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    components: dict[str, dict[int, float]] = field(default_factory=dict)


class _Builder:
    """Collects the results of queries, and checks every one."""

    def __init__(self, path: Path, scale: ScoreScale, *, ordered: bool) -> None:
        self.path, self.sign, self.ordered = path, SCALES[scale].sign, ordered
        self.numbers: dict[str, int] = {}
        self.queries: dict[str, _Results] = {}

    def add_trec(self, line: int, text: str) -> str:
        """Add a line of a TREC run; returns its tag."""
        fields = text.split()
        if len(fields) != 6:
            raise LineError(self.path, line, f"{len(fields)} fields, not 6", f'write "{_TREC}", or JSON Lines')
        query, _, document, rank, score, tag = fields
        results = self.queries.setdefault(query, _Results(line))
        self._add(line, results, document, self._number(line, "score", score))
        if not rank.lstrip("-").isdecimal():
            raise LineError(self.path, line, f"rank {rank[:20]!r} is not a whole number", f'write "{_TREC}"')
        results.ranks.append(int(rank))
        if results.ranks[-2:] != sorted(results.ranks[-2:]):
            raise LineError(self.path, line, f"rank {rank} after {results.ranks[-2]}", "list results best first")
        return tag

    def add_object(self, line: int, record: dict[str, Json]) -> None:
        """Add a query with its results from a line of JSON."""
        identifier = record.get("query_id")
        if not isinstance(identifier, str) or not identifier:
            identifier = required_text(self.path, line, record, "query_id")
        if identifier in self.queries:
            first = self.queries[identifier].line
            raise LineError(self.path, line, f"query {identifier!r} is already on line {first}", "keep one of the two")
        text = None if record.get("query") is None else required_text(self.path, line, record, "query")
        listed = record.get("results")
        if not isinstance(listed, list):
            raise LineError(self.path, line, 'no "results", a list of results', 'write {"query_id", "results"}')
        results = self.queries.setdefault(identifier, _Results(line, text, read_origin(self.path, line, record)))
        for result in listed:
            self._add_result(line, results, result)

    def _add_result(self, line: int, results: _Results, result: object) -> None:
        name = result.get("id") if isinstance(result, dict) else None
        if not isinstance(result, dict) or not isinstance(name, str | int) or isinstance(name, bool):
            raise LineError(self.path, line, "a result without an id", 'write {"id": …, "score": …}')
        self._add(line, results, str(name), self._number(line, "score", result.get("score")))
        scores = result.get("scores") or {}
        if not isinstance(scores, dict):
            raise LineError(self.path, line, '"scores" is not an object', 'write {"scores": {"name": number}}')
        place = len(results.scores) - 1
        for name, value in scores.items():
            if value is not None:  # a retriever that did not find the document has no score for it
                results.components.setdefault(name, {})[place] = self._number(line, f"score {name!r}", value)

    def _add(self, line: int, results: _Results, document: str, score: float) -> None:
        number = self.numbers.setdefault(document, len(self.numbers))
        if number in results.numbers:
            raise LineError(self.path, line, f"document {document!r} twice for one query", "list every document once")
        score *= self.sign
        if self.ordered and results.scores and score > results.scores[-1]:
            before, after = abs(results.scores[-1]), abs(score)
            remedy = (
                "list distances in rising order, or leave out --scores distance"
                if self.sign < 0
                else "list results best first; for distances, give --scores distance"
            )
            shown = (before, after) if self.sign < 0 else (results.scores[-1], score)
            raise LineError(self.path, line, f"score {shown[1]:g} after {shown[0]:g}", remedy)
        results.numbers[number] = None
        results.scores.append(score)

    def _number(self, line: int, what: str, value: object) -> float:
        """Return a finite number that fits float32."""
        number = finite_number(value)
        if math.isnan(number):
            raise LineError(self.path, line, f"{what} {str(value)[:20]!r} is not a finite number", "correct it")
        return number

    def built(self) -> Iterator[RunQuery]:
        """Yield the queries in the order of the file."""
        names = sorted({name for results in self.queries.values() for name in results.components})
        for identifier, results in self.queries.items():
            components = {}
            for name in names:
                values = np.full(len(results.scores), np.nan, dtype=np.float32)
                given = results.components.get(name, {})
                values[list(given)] = list(given.values())
                components[name] = values
            documents = np.fromiter(results.numbers, dtype=np.int64, count=len(results.numbers))
            scores = np.array(results.scores, dtype=np.float32)
            yield RunQuery(identifier, results.text, results.origin, results.line, documents, scores, components)


@dataclass(frozen=True)
class RunResults:
    """The results of n queries, K each, best first."""

    documents: NDArray[np.int64]  # (n, K) int64 numbers of documents
    scores: Float32  # (n, K) float32
    components: dict[str, Float32]  # further scores by name, (n, K) float32, NaN for a result without the score

    @classmethod
    def of(cls, queries: Sequence[RunQuery], k: int, names: Sequence[str]) -> Self:
        """Take the first k results of queries that have at least as many."""
        return cls(
            np.array([query.documents[:k] for query in queries], dtype=np.int64).reshape(-1, k),
            np.array([query.scores[:k] for query in queries], dtype=np.float32).reshape(-1, k),
            {
                name: np.array([query.components[name][:k] for query in queries], dtype=np.float32).reshape(-1, k)
                for name in names
            },
        )


@dataclass(frozen=True, kw_only=True)
class JudgedRun(LabelledQueries):
    """The queries that have both results and judgements, in the order of the run."""

    run: Run
    ids: Sequence[str]  # ids of documents by number; those that only the qrels name come last
    judged_documents: dict[str, frozenset[int]]  # numbers of the judged documents by query, whatever their grade

    @property
    def passages(self) -> int:
        """Number of documents that the run or the qrels name."""
        return len(self.ids)

    @property
    def parents(self) -> None:
        """None: every result is a document."""
        return

    @property
    def unlabelled_documents(self) -> int:
        """Number of documents that are relevant to no query, as far as the run can tell."""
        return max(super().unlabelled_documents, _UNLABELLED_FOR_EACH * len(self.answerable))

    @property
    def components(self) -> list[str]:
        """Names of the further scores, in alphabetical order."""
        return [*next(iter(self.run.queries.values())).components]

    @property
    def depth(self) -> int:
        """Smallest number of results of a query."""
        return min(len(self.run.queries[query.id]) for query in self.answerable + self.unanswerable)

    def results(self, queries: Sequence[LabelledQuery], k: int) -> RunResults:
        """Return the first k results of queries."""
        return RunResults.of([self.run.queries[query.id] for query in queries], k, self.components)

    def judged_share(self, k: int) -> float:
        """Return the share of the first k results of all queries that the qrels judge, 0…1."""
        queries = self.answerable + self.unanswerable
        judged = sum(
            len(self.judged_documents[query.id].intersection(self.run.queries[query.id].documents[:k].tolist()))
            for query in queries
        )
        return judged / (k * len(queries))

    @classmethod
    def read(cls, run: Run, qrels: Path, k: int, relevant_from: int | None = None) -> tuple[Self, list[str]]:
        """Join a run with its qrels; returns the queries, and sentences on queries that are left out and on grades."""
        qrels = stored_file(qrels)
        numbers, grades = dict(run.numbers), _grades(qrels, relevant_from)
        judged: dict[str, frozenset[int]] = {}
        queries = []
        for query in run.queries.values():
            if (documents := grades.get(query.id)) is None:
                continue
            of_query = {numbers.setdefault(name, len(numbers)): grade for name, grade in documents.items()}
            judged[query.id] = frozenset(of_query)
            relevant = {number: grade for number, grade in of_query.items() if grade >= 1}
            lesser = {number: -grade for number, grade in of_query.items() if grade < 0}
            text = query.text or query.id
            queries.append(LabelledQuery(query.id, text, relevant, origin=query.origin, lesser=lesser))
        answerable = [query for query in queries if query.relevant]
        if not answerable:
            raise InputError(
                f"{qrels}: no query of {run.path} has a document with score {relevant_from or 1} or more; check that "
                "both have the same query ids"
            )
        _check_depth(run, [run.queries[query.id] for query in queries], k)
        joined = cls(
            name=run.name,
            split=qrels.name.removesuffix(".gz").rsplit(".", 1)[0],
            answerable=answerable,
            unanswerable=[query for query in queries if not query.relevant],
            sha256={"run": run.sha256, "qrels": sha256_file(qrels)},
            run=run,
            ids=[*numbers],
            judged_documents=judged,
            relevant_from=relevant_from,
        )
        without_results = len(grades.keys() - judged.keys())
        left_out = {
            f"queries of {run.path} left out because {qrels} does not judge them": len(run.queries) - len(queries),
            f"queries of {qrels} left out because {run.path} has no results for them": without_results,
        }
        sentences = [f"{sentence}: {count:,}" for sentence, count in left_out.items() if count]
        return joined, sentences + joined.grade_notes


def _check_depth(run: Run, queries: Sequence[RunQuery], k: int) -> None:
    """Raise InputError if a judged query has fewer than K results."""
    short = [query for query in queries if len(query) < k]
    if not short:
        return
    if len(short) == len(queries):
        deepest = max(map(len, queries))
        raise InputError(
            f"{run.path}: has at most {deepest} results per query, and K is {k}; write the first {k} results of every "
            f"query, or give --k {max(1, deepest)}"
        )
    first = min(short, key=lambda query: query.line)
    raise InputError(
        f"{run.path}:{first.line}: query {first.id!r} has {len(first)} results, and {len(short):,} of "
        f"{len(queries):,} queries have fewer than K = {k}; write the first {k} results of every query, without a "
        "threshold, or give a smaller --k"
    )


def _grades(path: Path, relevant_from: int | None) -> dict[str, dict[str, int]]:
    """Return the grades of judged documents by query, see `Judgement.answering_from`; some queries may have none."""
    grades: dict[str, dict[str, int]] = {}
    for line, row in _judgements(path):
        judged = grades.setdefault(row.query, {})
        if row.document in judged:
            raise LineError(path, line, f"{row.query!r} and {row.document!r} are judged twice", "keep one of the two")
        if row.document != NO_DOCUMENT:
            judged[row.document] = row.judgement.answering_from(relevant_from).grade
        elif row.judgement.grade >= 1:
            raise LineError(
                path, line, f"{NO_DOCUMENT!r} stands for no document, so its score is 0", "correct the line"
            )
    if not grades:
        raise InputError(f"{path}: judges no query; {_JUDGED_RUN_MISSING}")
    return grades


def _judgements(path: Path) -> Iterator[tuple[int, JudgementLine]]:
    """Yield the lines of a BEIR file, which has a header, or of a TREC file: query, iteration, document, grade."""
    rows = read_lines(path, _JUDGED_RUN_MISSING)
    first = next(rows, (0, ""))[1]
    if first in {HEADER, WEIGHTED_HEADER}:
        weighted = parse_header(path, first)
        if weighted:
            raise LineError(
                path, 1, "the queries have weights, because they were sampled unevenly", "give qrels without weights"
            )
        for line, text in rows:
            yield line, parse_judgement(path, line, text)
        return
    for line, text in [(1, first)] if first else []:
        yield line, _trec(path, line, text)
    for line, text in rows:
        yield line, _trec(path, line, text)


def _trec(path: Path, line: int, text: str) -> JudgementLine:
    fields = text.split()
    if len(fields) != 4:
        remedy = f"write TREC's query, iteration, document and grade, or {HEADER!r} (tabs between) as the first line"
        raise LineError(path, line, f"{len(fields)} fields, not 4", remedy)
    query, _, document, grade = fields
    return parse_judgement(path, line, f"{query}\t{document}\t{grade}")
