"""Near misses: questions close to the corpus that no document answers, made from labelled queries without a model.

A near miss changes one part of an answerable query, so that the rare terms of its parts occur in the corpus, but in no
document together. Entity swaps, antonyms and other numbers are the ways in which people made a third of the negatives
of SQuAD 2.0 (Rajpurkar et al. 2018, Table 2).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from taugate.ingestion.dataset.beir import Dataset
from taugate.ingestion.queries.changed_queries import ChangedQueries
from taugate.ingestion.queries.generate import normalized

# name: a name or rare term of another query. number: another number. tail: the end of another query, after a
# preposition. opposite: the opposite of a word.
NearMissKind = Literal["name", "number", "tail", "opposite"]
KINDS: tuple[NearMissKind, ...] = get_args(NearMissKind)
MAX_PER_KIND = 100  # a share of .9 to within six points: 1.96 · √(.9 · .1 / 100) = .059


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A question that, with high probability, no document answers.

    Attributes:
        text: Text of the question.
        kind: How it was made.
        source: Position in `Dataset.answerable` of the query that it was made from.
    """

    text: str
    kind: NearMissKind
    source: int


def near_misses(dataset: Dataset, seed: int, max_per_kind: int = MAX_PER_KIND) -> list[NearMiss]:
    """Make near misses from the answerable queries of a data set.

    A labelled query makes at most one near miss of each kind, and none repeats a query of the data set. The corpus is
    read once, and no model is used. Texts without spaces between words give few or none.

    Args:
        dataset: Corpus and labelled queries.
        seed: Seed of every random choice; equal seeds give equal near misses.
        max_per_kind: Largest number of near misses of one kind.
    """
    changed = ChangedQueries.read(dataset, seed)
    makers: dict[NearMissKind, Callable[[int], Iterator[str]]] = {
        "name": changed.with_other_name,
        "number": changed.with_other_number,
        "tail": changed.with_other_tail,
        "opposite": changed.with_opposite,
    }
    taken = {normalized(query.text) for query in dataset.answerable + dataset.unanswerable}
    made: list[NearMiss] = []
    for kind, make in makers.items():
        count = 0
        for source in changed.queries:
            text = next((text for text in make(source) if normalized(text) not in taken), None)
            if text is not None and count < max_per_kind:
                count += 1
                taken.add(normalized(text))
                made.append(NearMiss(text, kind, source))
    return made
