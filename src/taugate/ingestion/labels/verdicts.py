"""Combine what the judges of a sample say, and write it to a split as labels."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from taugate.ingestion.dataset.editing import NewQuery, QueryFile, judgement_lines, remove_judgements, replace_queries
from taugate.ingestion.dataset.judgements import Judgement, JudgementLine, qrels_of
from taugate.ingestion.dataset.lock import sole_writer
from taugate.ingestion.labels.agreement import Agreement, Vote, agreement
from taugate.ingestion.labels.journal import Journal
from taugate.ingestion.labels.sample import Round, SampledQuery, check_corpus, check_queries, rounds_folder
from taugate.ingestion.labels.sampling import NAMES, weights
from taugate.ingestion.labels.session import Documents, Question, all_questions, finished


class Judged(NamedTuple):
    """A query that at least one judge has finished.

    Attributes:
        query: Of the sample.
        grades: 1 or 0 of each passage that was judged, by id.
        weight: How many queries it stands for.
    """

    query: SampledQuery
    grades: Mapping[str, int]
    weight: float


class Disagreement(NamedTuple):
    """A result that as many judges find relevant as not.

    Attributes:
        query: Ids.
        text: Of the query.
        document: Ids.
        relevant: Names of the judges.
        irrelevant: Names of the judges.
    """

    query: str
    text: str
    document: str
    relevant: list[str]
    irrelevant: list[str]


@dataclass(frozen=True)
class Verdicts:
    """The judgements of a sample by all of its judges.

    A result is relevant where at least half of its judges say so: what one of two people finds useful must not be lost.

    Attributes:
        sample: The round.
        judged: Its queries that at least one judge has finished.
        earlier: Weights of the queries of earlier samples, by id.
        agreements: Of each two judges who have finished the same queries.
        disagreements: In the order of the sample.
    """

    sample: Round
    judged: Sequence[Judged]
    earlier: Mapping[str, float]
    agreements: Mapping[tuple[str, str], Agreement]
    disagreements: Sequence[Disagreement]

    @classmethod
    def of(cls, sample: Round, documents: Documents, journals: Sequence[Journal]) -> "Verdicts":
        """Combine what judges say.

        Args:
            sample: The round.
            documents: Every passage that it names.
            journals: Of the judges.
        """
        done = {each.judge: {query.id for query in finished(sample, documents, each)} for each in journals}
        complete = [query for query in sample.queries if any(query.id in queries for queries in done.values())]
        said = {each.judge: each.judgements() for each in journals}
        judged_share = len(sample.earlier) / max(len(sample.earlier) + len(complete), 1)
        weighted = any(weight is not None for weight in sample.earlier.values())
        share = judged_share if weighted else 0.0
        counts = [sum(query.stratum == stratum for query in complete) for stratum in range(len(NAMES))]
        by_stratum = weights(sample.sizes, counts)
        judged = [
            Judged(query, _grades(query, documents, said), (1 - share) * by_stratum[query.stratum])
            for query in complete
        ]
        earlier = {
            name: 1.0 if weight is None else share * weight + (1 - share) for name, weight in sample.earlier.items()
        }
        return cls(
            sample,
            judged,
            earlier,
            dict(_agreements(sample, documents, said, done)),
            [_disagreement(*each) for each in disputed(sample, documents, journals)],
        )


def read_journals(data: Path, split: str) -> list[Journal]:
    """Read what every judge of a split has said, in the order of their names.

    Args:
        data: Folder of the data set.
        split: That is judged.

    Raises:
        LineError: For a line that is no key press.
    """
    return [Journal.read(path) for path in sorted(rounds_folder(data, split).glob("*.jsonl"))]


def write_verdicts(data: Path, split: str, verdicts: Verdicts, seconds: float = 0) -> None:
    """Write the judgements of a sample to the split, and queries of a log that are judged to queries.jsonl.

    The whole sample is written again each time, as its weights depend on how many queries are judged.

    Args:
        data: Folder of the data set.
        split: That is judged.
        verdicts: Of all judges.
        seconds: How long to wait for another command that is writing to the data set.

    Raises:
        InputError: Where the corpus or a query is no longer that of the sample, and DatasetBusy where another command
            is still writing; then nothing is written.
    """
    with sole_writer(data, seconds):
        check_corpus(data, verdicts.sample)
        before = QueryFile.read(data)
        check_queries(data, before, verdicts.sample)
        known = {each.identifier for each in before.lines}
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
        made = {
            query.id: NewQuery(query.text, query.origin)
            for query, _, _ in verdicts.judged
            if query.new and query.id not in known
        }
        sampled, judged = {each.id for each in verdicts.sample.queries}, {each.query.id for each in verdicts.judged}
        cleared = {line.query for line in lines if line.query in sampled - judged}
        if cleared:
            remove_judgements(data, split, cleared)
        if rows:
            replace_queries(data, split, before, made, rows)


def disputed(
    sample: Round, documents: Documents, journals: Sequence[Journal]
) -> Iterator[tuple[Question, dict[str, bool]]]:
    """Yield the results that as many judges find relevant as not, with what each judge says.

    Args:
        sample: The round.
        documents: Every passage that it names.
        journals: Of the judges.
    """
    said = {each.judge: each.judgements() for each in journals}
    for question in _questions(sample, documents):
        votes = _votes(question, said)
        if votes and 2 * sum(votes.values()) == len(votes):
            yield question, votes


def _questions(sample: Round, documents: Documents) -> Iterator[Question]:
    return (question for query in sample.queries for question in all_questions(query, documents))


def _votes(question: Question, said: Mapping[str, Mapping[str, bool]]) -> dict[str, bool]:
    """Return what each judge says of a result, by name; those who have not judged it are left out."""
    return {judge: judgements[question.pair] for judge, judgements in said.items() if question.pair in judgements}


def _grades(query: SampledQuery, documents: Documents, said: Mapping[str, Mapping[str, bool]]) -> dict[str, int]:
    """Return 1 or 0 for each passage of a query that anybody has judged."""
    voted = {each.document.id: _votes(each, said) for each in all_questions(query, documents)}
    return {name: int(2 * sum(votes.values()) >= len(votes)) for name, votes in voted.items() if votes}


def _agreements(
    sample: Round,
    documents: Documents,
    said: Mapping[str, Mapping[str, bool]],
    done: Mapping[str, Collection[str]],
) -> Iterator[tuple[tuple[str, str], Agreement]]:
    """Compare each two judges over the queries that both have finished; results chosen for being disputed say nothing.

    Args:
        done: Ids of the queries that each judge has finished.
    """
    voted = [(each.query.id, _votes(each, said)) for each in _questions(sample, documents)]
    for one, other in combinations(said, 2):
        queries = {*done[one]} & {*done[other]}
        both = [
            Vote(query, votes[one], votes[other])
            for query, votes in voted
            if query in queries and {one, other} <= votes.keys()
        ]
        if both:
            yield (one, other), agreement(both)


def _disagreement(question: Question, votes: Mapping[str, bool]) -> Disagreement:
    relevant, irrelevant = ([judge for judge, vote in votes.items() if vote is each] for each in (True, False))
    return Disagreement(question.query.id, question.query.text, question.document.id, relevant, irrelevant)
