"""Reads a run: the results of a retriever for many queries, with their scores.

A run is a TREC file (`query Q0 document rank score tag`) or JSON Lines, plain or packed with gzip:

    {"query_id": "q1", "query": "…", "results": [{"id": "d7", "score": 0.71, "scores": {"bm25": 12.3}}]}

Results are listed best first. The text of the query and the further scores of a result may be missing.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.data.lines import LineError, read_lines, read_objects, required_text, stored_file
from taugate.data.queries import Origin, read_origin
from taugate.data.runs.search_request import finite_number
from taugate.errors import InputError
from taugate.policy.arrays import Float32
from taugate.policy.score_relevance import SCALES, ScoreScale
from taugate.storage.files import Json, sha256_file

_MISSING = "give a TREC run, or JSON Lines with query_id and results"
_TREC = "query Q0 document rank score tag"


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
        """Read a run.

        Args:
            scale: What the scores are. Results are listed by falling score, or by rising distance.
            ordered: Whether to check that order.
        """
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
