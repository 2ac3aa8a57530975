"""A run with the qrels of its queries, BEIR or TREC."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.data.judgements import HEADER, NO_DOCUMENT, WEIGHTED_HEADER, JudgementLine, parse_header, parse_judgement
from taugate.data.labelled_queries import LabelledQueries, LabelledQuery
from taugate.data.lines import LineError, read_lines, stored_file
from taugate.data.runs.run import Run, RunQuery
from taugate.errors import InputError
from taugate.policy.arrays import Float32
from taugate.storage.files import sha256_file

_MISSING = "give the qrels of the run's queries, BEIR (.tsv with a header) or TREC"
# A run does not tell how many documents there are. Advice on further labels assumes so many without a label for each
# labelled query, as in a collection that is large beside its labels.
_UNLABELLED_FOR_EACH = 100


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
        """Join a run with its qrels; returns the queries, and sentences on queries that are left out and on grades.

        Args:
            k: K, the number of results that every query has to have.
            relevant_from: The lowest grade that answers; None for 1.
        """
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
        raise InputError(f"{path}: judges no query; {_MISSING}")
    return grades


def _judgements(path: Path) -> Iterator[tuple[int, JudgementLine]]:
    """Yield the lines of a BEIR file, which has a header, or of a TREC file: query, iteration, document, grade."""
    rows = read_lines(path, _MISSING)
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
