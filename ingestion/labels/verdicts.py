"""What the judges of a sample say together, and how it becomes the judgements of a split."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from taugate.ingestion.dataset.editing import NewQuery, QueryFile, judgement_lines, remove_judgements, replace_queries
from taugate.ingestion.dataset.judgements import Judgement, JudgementLine, qrels_of
from taugate.ingestion.dataset.lock import sole_writer
from taugate.ingestion.labels.agreement import Agreement, Vote, agreement
from taugate.ingestion.labels.journal import Journal, pair_of
from taugate.ingestion.labels.sample import Round, SampledQuery, check_corpus, rounds_folder
from taugate.ingestion.labels.sampling import NAMES, weights
from taugate.ingestion.labels.session import Documents, finished


class Judged(NamedTuple):
    """A query that at least one judge has finished.

    query: of the sample. grades: 1 or 0 of each passage that was judged, by id. weight: how many queries it stands for.
    """

    query: SampledQuery
    grades: Mapping[str, int]
    weight: float


class Disagreement(NamedTuple):
    """A result that some judges find relevant and others do not.

    query, document: ids. text: of the query. relevant, irrelevant: names of the judges.
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

    sample: the round. judged: its queries that at least one judge has finished. earlier: weights of the queries of
    earlier samples, by id. agreements: of each two judges who have judged the same results. disagreements: in the order
    of the sample.
    """

    sample: Round
    judged: Sequence[Judged]
    earlier: Mapping[str, float]
    agreements: Mapping[tuple[str, str], Agreement]
    disagreements: Sequence[Disagreement]

    @classmethod
    def of(cls, sample: Round, documents: Documents, journals: Sequence[Journal]) -> "Verdicts":
        """Combine what judges say.

        sample: the round. documents: every passage that it names. journals: of the judges.
        """
        done = {query.id for journal in journals for query in finished(sample, documents, journal)}
        complete = [query for query in sample.queries if query.id in done]
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
            dict(_agreements(sample, documents, said)),
            list(_disagreements(sample, documents, said)),
        )


def read_journals(data: Path, split: str) -> list[Journal]:
    """Read what every judge of a split has said, in the order of their names.

    data: folder of the data set. split: that is judged. Raises LineError for a line that is no key press.
    """
    return [Journal.read(path) for path in sorted(rounds_folder(data, split).glob("*.jsonl"))]


def write_verdicts(data: Path, split: str, verdicts: Verdicts) -> None:
    """Write the judgements of a sample to the split, and queries of a log that are judged to queries.jsonl.

    The whole sample is written again each time, as its weights depend on how many queries are judged.

    data: folder of the data set. split: that is judged. verdicts: of all judges. Raises InputError where the corpus is
    no longer that of the sample, or another command is writing; then nothing is written.
    """
    with sole_writer(data):
        check_corpus(data, verdicts.sample)
        before = QueryFile.read(data)
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


def _grades(query: SampledQuery, documents: Documents, said: Mapping[str, Mapping[str, bool]]) -> dict[str, int]:
    """Return 1 or 0 for each passage of a query that anybody has judged."""
    grades = {}
    for name in (*query.results, *query.others):
        pair = pair_of(query.text, documents[name])
        votes = [judgements[pair] for judgements in said.values() if pair in judgements]
        if votes:
            grades[name] = int(2 * sum(votes) >= len(votes))
    return grades


def _agreements(
    sample: Round, documents: Documents, said: Mapping[str, Mapping[str, bool]]
) -> Iterator[tuple[tuple[str, str], Agreement]]:
    for one, other in combinations(said, 2):
        votes = [
            Vote(query.id, said[one][pair], said[other][pair])
            for query, _, pair in _pairs(sample, documents)
            if pair in said[one] and pair in said[other]
        ]
        if votes:
            yield (one, other), agreement(votes)


def _disagreements(
    sample: Round, documents: Documents, said: Mapping[str, Mapping[str, bool]]
) -> Iterator[Disagreement]:
    for query, name, pair in _pairs(sample, documents):
        votes = {judge: judgements[pair] for judge, judgements in said.items() if pair in judgements}
        if len(set(votes.values())) == 2:
            yes, no = ([judge for judge, vote in votes.items() if vote is each] for each in (True, False))
            yield Disagreement(query.id, query.text, name, yes, no)


def _pairs(sample: Round, documents: Documents) -> Iterator[tuple[SampledQuery, str, str]]:
    """Yield each query with the id of each of its passages, and the digits of the pair."""
    for query in sample.queries:
        for name in (*query.results, *query.others):
            yield query, name, pair_of(query.text, documents[name])
