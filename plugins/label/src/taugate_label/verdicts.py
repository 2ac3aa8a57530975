"""Combines the judgements of all judges of a sample, with their agreement, and writes them to a split."""

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from taugate.data.judgements import Judgement, JudgementLine, qrels_of
from taugate.data.queries import (
    DatasetQuery,
    QueryFile,
    judgement_lines,
    remove_judgements,
    replace_queries,
    sole_writer,
)
from taugate_label.sample import Round, SampledQuery, check_corpus, check_queries, rounds_folder, weights
from taugate_label.session import Documents, Journal, Question, all_questions, finished

_TWO_SIDED_95 = 1.959964  # of the standard normal distribution


class Vote(NamedTuple):
    """The answers of two judges about one result."""

    query: Hashable
    first: bool
    second: bool


class Agreement(NamedTuple):
    """The agreement of two judges.

    Attributes:
        kappa: 1 if they agree on everything, 0 if they agree as often as by chance; None if all their answers are the
            same.
        lower: Lower end of the 95 % interval of kappa; None if it cannot be estimated.
        upper: Upper end of the 95 % interval of kappa; None if it cannot be estimated.
    """

    results: int
    equal: int
    kappa: float | None
    lower: float | None = None
    upper: float | None = None


def agreement(votes: Sequence[Vote]) -> Agreement:
    """Compare two judges over the results that both have judged.

    Results of one query are not independent, so the interval is that of the jackknife that leaves out one query at a
    time (Efron and Stein, Annals of Statistics 9, 1981).
    """
    equal = sum(vote.first == vote.second for vote in votes)
    kappa = cohen_kappa(votes)
    by_query: dict[Hashable, list[Vote]] = {}
    for vote in votes:
        by_query.setdefault(vote.query, []).append(vote)
    without = [cohen_kappa([vote for vote in votes if vote.query != query]) for query in by_query]
    estimates = [estimate for estimate in without if estimate is not None]
    if kappa is None or len(estimates) < 2 or len(estimates) < len(without):
        return Agreement(len(votes), equal, kappa)
    mean, n = math.fsum(estimates) / len(estimates), len(estimates)
    error = math.sqrt((n - 1) / n * math.fsum((estimate - mean) ** 2 for estimate in estimates))
    if error < 1e-12:  # no query differs from the others, so the variation between queries is unknown
        return Agreement(len(votes), equal, kappa)
    lower, upper = kappa - _TWO_SIDED_95 * error, kappa + _TWO_SIDED_95 * error
    return Agreement(len(votes), equal, kappa, max(lower, -1.0), min(upper, 1.0))


def cohen_kappa(votes: Sequence[Vote]) -> float | None:
    """Return κ = (p₀ − pₑ) / (1 − pₑ) (Cohen, Educational and Psychological Measurement 20, 1960).

    p₀ is the share of results on which the judges agree, pₑ the share expected if each gave as many of both answers to
    results drawn at random. None if pₑ is 1, as κ has no value then.
    """
    if not votes:
        return None
    n = len(votes)
    observed = sum(vote.first == vote.second for vote in votes) / n
    first, second = sum(vote.first for vote in votes) / n, sum(vote.second for vote in votes) / n
    expected = first * second + (1 - first) * (1 - second)
    return None if expected >= 1 else (observed - expected) / (1 - expected)


class FinishedQuery(NamedTuple):
    """A query that at least one judge has finished.

    Attributes:
        weight: Number of queries that it stands for; None if all queries had the same probability to be drawn.
    """

    query: SampledQuery
    grades: Mapping[str, int]
    weight: float | None


class Disagreement(NamedTuple):
    """A result that as many judges find relevant as not."""

    query: str
    text: str
    document: str
    relevant: list[str]
    irrelevant: list[str]


@dataclass(frozen=True)
class Verdicts:
    """The judgements of a sample by all of its judges.

    A result is relevant if at least half of its judges say so: results that one of two people finds useful must not be
    lost.
    """

    sample: Round
    judged: Sequence[FinishedQuery]
    earlier: Mapping[str, float | None]
    agreements: Mapping[tuple[str, str], Agreement]
    disagreements: Sequence[Disagreement]

    @classmethod
    def of(cls, sample: Round, documents: Documents, journals: Sequence[Journal]) -> "Verdicts":
        """Combine the judgements of all judges."""
        done = {journal.judge: {query.id for query in finished(sample, documents, journal)} for journal in journals}
        complete = [query for query in sample.queries if any(query.id in queries for queries in done.values())]
        by_judge = {journal.judge: journal.judgements() for journal in journals}
        judged_share = len(sample.earlier) / max(len(sample.earlier) + len(complete), 1)
        weighted = any(weight is not None for weight in sample.earlier.values())
        share = judged_share if weighted else 0.0
        counts = [sum(query.stratum == stratum for query in complete) for stratum in range(len(sample.sizes))]
        by_stratum = weights(sample.sizes, counts)
        simple = len(sample.sizes) == 1 and not weighted
        judged = [
            FinishedQuery(
                query, _grades(query, documents, by_judge), None if simple else (1 - share) * by_stratum[query.stratum]
            )
            for query in complete
        ]
        earlier = {
            name: (None if simple else 1.0) if weight is None else share * weight + (1 - share)
            for name, weight in sample.earlier.items()
        }
        return cls(
            sample,
            judged,
            earlier,
            dict(_agreements(sample, documents, by_judge, done)),
            [_disagreement(question, votes) for question, votes in disputed(sample, documents, journals)],
        )


def read_journals(data: Path, split: str) -> list[Journal]:
    """Read the journals of all judges of a split, in the order of their names."""
    return [Journal.read(path) for path in sorted(rounds_folder(data, split).glob("*.jsonl"))]


def write_verdicts(data: Path, split: str, verdicts: Verdicts, seconds: float = 0) -> None:
    """Write the judgements of a sample to the split, and judged queries of a log to queries.jsonl.

    The whole sample is written again each time, as its weights depend on the number of judged queries.

    Args:
        seconds: Maximum time to wait for another command that is writing to the data set.
    """
    with sole_writer(data, seconds):
        check_corpus(data, verdicts.sample)
        before = QueryFile.read(data)
        check_queries(data, before, verdicts.sample)
        lines = judgement_lines(data / qrels_of(split))
        rows = [
            line._replace(judgement=line.judgement._replace(weight=verdicts.earlier[line.query]))
            for line in lines
            if line.query in verdicts.earlier
        ]
        rows += [
            JudgementLine(query.id, document, Judgement(grade, weight))
            for query, grades, weight in verdicts.judged
            for document, grade in grades.items()
        ]
        added = {
            query.id: DatasetQuery(query.text, query.origin)
            for query, _, _ in verdicts.judged
            if query.new and query.id not in before.queries
        }
        sampled = {query.id for query in verdicts.sample.queries}
        judged = {query.id for query, _, _ in verdicts.judged}
        cleared = {line.query for line in lines if line.query in sampled - judged}
        if cleared:
            remove_judgements(data, split, cleared)
        if rows:
            replace_queries(data, split, before, added, rows)


def disputed(
    sample: Round, documents: Documents, journals: Sequence[Journal]
) -> Iterator[tuple[Question, dict[str, bool]]]:
    """Yield the results that as many judges find relevant as not, with each judge's answer."""
    by_judge = {journal.judge: journal.judgements() for journal in journals}
    for question in _questions(sample, documents):
        votes = _votes(question, by_judge)
        if votes and 2 * sum(votes.values()) == len(votes):
            yield question, votes


def _questions(sample: Round, documents: Documents) -> Iterator[Question]:
    return (question for query in sample.queries for question in all_questions(query, documents))


def _votes(question: Question, by_judge: Mapping[str, Mapping[str, bool]]) -> dict[str, bool]:
    """Return the judges' answers about a result, by name; judges who have not judged it are left out."""
    return {judge: judgements[question.pair] for judge, judgements in by_judge.items() if question.pair in judgements}


def _grades(query: SampledQuery, documents: Documents, by_judge: Mapping[str, Mapping[str, bool]]) -> dict[str, int]:
    """Return 1 or 0 for each passage of a query that has been judged."""
    voted = {question.document.id: _votes(question, by_judge) for question in all_questions(query, documents)}
    return {name: int(2 * sum(votes.values()) >= len(votes)) for name, votes in voted.items() if votes}


def _agreements(
    sample: Round, documents: Documents, by_judge: Mapping[str, Mapping[str, bool]], done: Mapping[str, Collection[str]]
) -> Iterator[tuple[tuple[str, str], Agreement]]:
    """Compare each pair of judges over the queries that both have finished; other results may be a biased choice."""
    voted = [(question.query.id, _votes(question, by_judge)) for question in _questions(sample, documents)]
    for first, second in combinations(by_judge, 2):
        queries = {*done[first]} & {*done[second]}
        both = [
            Vote(query, votes[first], votes[second])
            for query, votes in voted
            if query in queries and {first, second} <= votes.keys()
        ]
        if both:
            yield (first, second), agreement(both)


def _disagreement(question: Question, votes: Mapping[str, bool]) -> Disagreement:
    relevant = [judge for judge, vote in votes.items() if vote]
    irrelevant = [judge for judge, vote in votes.items() if not vote]
    return Disagreement(question.query.id, question.query.text, question.document.id, relevant, irrelevant)
