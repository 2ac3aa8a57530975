"""Near misses: questions close to the corpus that no document answers, made from labelled queries without a model.

A near miss changes one part of an answerable query, so that no document holds the new part together with the rest. In
SQuAD 2.0, people made unanswerable questions in the same ways: of the 3,106 of its development set whose cause is
annotated (SQuAD2-CR), 63 % have another entity, another number or date, or an antonym.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset, read_dataset
from taugate.ingestion.dataset.editing import QueryFile, replace_queries
from taugate.ingestion.dataset.judgements import GENERATED
from taugate.ingestion.dataset.lock import sole_writer
from taugate.ingestion.dataset.queries import NEAR_MISS_KINDS, DatasetQuery, NearMissKind
from taugate.ingestion.queries.changed_queries import ChangedQueries
from taugate.ingestion.queries.generate import check_request, free_id, normalized

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


def near_misses(dataset: Dataset, seed: int) -> list[NearMiss]:
    """Return the near misses that a person could read and correct, or make some if none was written.

    Those written by `taugate queries --unanswerable` count if they were made from an answerable query of the data set.

    Args:
        dataset: Corpus and labelled queries.
        seed: Seed of every random choice.
    """
    positions = {query.id: row for row, query in enumerate(dataset.answerable)}
    written = [
        NearMiss(query.text, query.kind, positions[query.source])
        for query in dataset.written_near_misses
        if query.kind is not None and query.source in positions
    ]
    return written or make_near_misses(dataset, seed)


def make_near_misses(dataset: Dataset, seed: int, max_per_kind: int = MAX_PER_KIND) -> list[NearMiss]:
    """Make near misses from the answerable queries of a data set.

    A query makes at most one near miss of each kind, a crop none, and none repeats a query of the data set. The corpus
    is read once, and no model is used. Texts without spaces between words give few or none.

    Args:
        dataset: Corpus and labelled queries.
        seed: Seed of every random choice; equal seeds give equal near misses.
        max_per_kind: Largest number of near misses of one kind.
    """
    if all(query.origin == "crop" for query in dataset.answerable):
        return []
    changed = ChangedQueries.read(dataset, seed)
    makers: dict[NearMissKind, Callable[[int], Iterator[str]]] = {
        "name": changed.with_other_name,
        "year": changed.with_other_year,
        "opposite": changed.with_opposite,
    }
    taken = {normalized(query.text) for query in dataset.answerable + dataset.unanswerable}
    questions: list[NearMiss] = []
    for kind, make in makers.items():
        before = len(questions)
        for source in changed.queries:
            if len(questions) == before + max_per_kind:
                break
            text = next((text for text in make(source) if normalized(text) not in taken), None)
            if text is not None:
                taken.add(normalized(text))
                questions.append(NearMiss(text, kind, source))
    return questions


def generate_near_misses(data: Path, split: str, max_queries: int, seed: int) -> list[NearMiss]:
    """Make near misses from the queries of a split, and write them into queries.jsonl.

    They belong to no split; `near_misses` returns them in place of new ones. Those of an earlier run are replaced, and
    every other query keeps its line, byte for byte.

    Args:
        data: Folder of the data set.
        split: Split whose answerable queries are changed.
        max_queries: Largest number of near misses.
        seed: Seed of every random choice.

    Raises:
        InputError: If the data set cannot be read, or no query can be changed; then nothing is written.
    """
    check_request(data, max_queries)
    with sole_writer(data), tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        dataset = read_dataset(data, split, Path(spool))
        per_kind = min(MAX_PER_KIND, -(-max_queries // len(NEAR_MISS_KINDS)))
        questions = make_near_misses(dataset, seed, per_kind)[:max_queries]
        if not questions:
            raise InputError(
                f"{data}: no query of split {split} can be changed so that surely no document answers it; write such "
                'questions yourself, with "answerable": false'
            )
        before = QueryFile.read(data)
        existing = before.texts(other_than="near_miss")
        added: dict[str, DatasetQuery] = {}
        for near_miss in questions:
            source = dataset.answerable[near_miss.source].id
            name = free_id(f"{near_miss.kind}:{source}", existing, added)
            added[name] = DatasetQuery(near_miss.text, "near_miss", None, near_miss.kind, source, answerable=False)
        replace_queries(data, GENERATED, before, added, [], removed=before.texts("near_miss"))
    return questions
