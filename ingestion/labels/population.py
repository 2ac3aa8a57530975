"""The queries that a sample to judge is drawn from: what people asked, in the data set or in a query log."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Origin
from taugate.ingestion.dataset.editing import QueryFile

ASKED: tuple[Origin, ...] = ("human", "traffic")  # origins of queries that people asked


class Candidate(NamedTuple):
    """A query that may be judged.

    id: its `_id`. text: what is asked. origin: who asked it. new: whether queries.jsonl does not have it yet.
    """

    id: str
    text: str
    origin: Origin
    new: bool = False


@dataclass(frozen=True)
class Population:
    """The queries of which a sample is judged.

    queries: each once. remarks: what the user should know about them, a sentence each.
    """

    queries: list[Candidate]
    remarks: list[str] = field(default_factory=list)


def population(data: Path, judged: Collection[str], asked: Iterable[Candidate] = ()) -> Population:
    """Collect the queries that people asked and nobody judged; generated queries only where there are no others.

    data: folder of the data set. judged: ids of queries that are judged already. asked: queries of a log; one whose
    text the data set has already is left out. Raises InputError where no query is left.
    """
    known = QueryFile.read(data).lines
    texts = {each.text for each in known}
    human = [Candidate(each.identifier, each.text, each.origin) for each in known if each.origin in ASKED]
    left = [each for each in human if each.id not in judged]
    left += [each for each in asked if each.text not in texts]
    if left:
        return Population(left)
    if human:
        raise InputError(
            f"{data}: all of its {len(human):,} human queries are judged; add new ones, or name a query log with --log"
        )
    generated = [Candidate(each.identifier, each.text, each.origin) for each in known]
    generated = [each for each in generated if each.id not in judged]
    if generated:
        return Population(
            generated, ["generated queries say little about what people ask: judge queries of a log soon"]
        )
    raise InputError(f"{data}: has no query to judge; add queries that people asked, or name a query log with --log")
