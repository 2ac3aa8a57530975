"""A labelled data set in the BEIR layout (docs/calibration.md): a corpus, queries, and judgements of a split."""

import hashlib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.data.corpus import CORPUS, spool_corpus
from taugate.data.judgements import (
    GENERATED,
    TRAFFIC,
    CorpusIds,
    drop_orphans,
    judged_queries,
    qrels_of,
    read_qrels,
    splits_in,
)
from taugate.data.labelled_queries import LabelledQueries, LabelledQuery, OtherQueries, is_same_text, left_out_notes
from taugate.data.lines import stored_file
from taugate.data.queries import PEOPLE, QUERIES, DatasetQuery, check_folder, judgement_lines, read_queries
from taugate.data.questions import OffTopicQuestion, off_topic_questions
from taugate.data.vectors import DatasetVectors
from taugate.errors import InputError
from taugate.retrieval.documents.store import DocumentStore
from taugate.storage.files import sha256_file


@dataclass(frozen=True, kw_only=True)
class Dataset(LabelledQueries):
    """A corpus with the queries of one split, which are in the order of queries.jsonl.

    Attributes:
        documents: Documents in the order of corpus.jsonl.
        vectors: Vectors of documents and queries by the user's own model; None if an encoder makes them.
        orphaned: Number of queries left out because every document that answered them was removed.
        empty: Number of documents left out because they have neither title nor text.
        written_near_misses: Near misses in queries.jsonl, whatever the split.
    """

    documents: DocumentStore
    vectors: DatasetVectors | None = None
    orphaned: int = 0
    empty: int = 0
    written_near_misses: Sequence[DatasetQuery] = ()

    @property
    def passages(self) -> int:
        """N, the number of passages in the corpus."""
        return len(self.documents)

    @property
    def parents(self) -> NDArray[np.int32] | None:
        """See `DocumentStore.parents`."""
        return self.documents.parents

    @property
    def own_documents(self) -> int:
        """Number of queries of the split that are documents of the corpus, and left out of their own results."""
        return sum(bool(query.own_passages) for query in self.answerable + self.unanswerable)

    @property
    def notes(self) -> list[str]:
        """Messages for the user about documents and queries that are left out, a sentence each."""
        return [*left_out_notes(self.empty, self.own_documents), *self.grade_notes]

    @cached_property
    def off_topic(self) -> tuple[OffTopicQuestion, ...]:
        """Off-topic questions in the language of the answerable queries; none if queries bring their own vectors."""
        return () if self.vectors is not None else off_topic_questions(query.text for query in self.answerable)

    @property
    def off_topic_texts(self) -> list[str]:
        """Texts of the off-topic questions."""
        return [question.text for question in self.off_topic]


@dataclass(frozen=True)
class OpenDataset:
    """A data set whose documents and queries have been read; its splits are read one by one."""

    folder: Path
    documents: DocumentStore  # documents in the order of corpus.jsonl
    ids: CorpusIds
    queries: Mapping[str, DatasetQuery]  # queries by id, in the order of queries.jsonl
    vectors: DatasetVectors | None = None

    @classmethod
    def read(cls, folder: Path, split: str, spool: Path, *, own_vectors: bool = False) -> Self:
        """Read and check the documents and the queries."""
        check_folder(folder, split)
        corpus, queries = stored_file(folder / CORPUS), stored_file(folder / QUERIES)
        stored_file(folder / qrels_of(split))
        ids = spool_corpus(corpus, spool)
        by_id = read_queries(queries)
        vectors = DatasetVectors.read(folder, ids, by_id) if own_vectors else None
        return cls(folder, DocumentStore(spool), ids, by_id, vectors)

    def labelled(
        self, split: str, earlier_ids: Container[str] = (), relevant_from: int | None = None
    ) -> tuple[list[LabelledQuery], int]:
        """Return the queries of a split in the order of queries.jsonl, and the number of queries left out as orphaned.

        A query that queries.jsonl calls unanswerable belongs to every split if no split judges it. A near miss belongs
        to none then: it is in `Dataset.written_near_misses`.
        """
        unanswerable = {name for name, query in self.queries.items() if not query.answerable}
        path = self.folder / qrels_of(split)
        judgements = read_qrels(path, self.queries, self.ids, earlier_ids, unanswerable, relevant_from)
        orphaned = drop_orphans(judgements)
        if unanswerable:
            unlisted = unanswerable - judged_queries(self.folder)
            judgements |= {name: {} for name in unlisted if not self.queries[name].is_near_miss}
        return [
            LabelledQuery.of(name, query, judgements[name], self.documents.parents, self.own_passages(name))
            for name, query in self.queries.items()
            if name in judgements
        ], orphaned

    @property
    def near_misses(self) -> list[DatasetQuery]:
        """Near misses in queries.jsonl, in its order."""
        return [query for query in self.queries.values() if query.is_near_miss]

    def own_passages(self, name: str) -> tuple[int, ...]:
        """Return the positions of the passages that are the query itself."""
        judged_id = self.ids.find(name)
        if judged_id is None:
            return ()
        positions = [judged_id.position]
        if judged_id.is_document and self.documents.parents is not None:
            positions = np.flatnonzero(self.documents.parents == judged_id.position).tolist()
        same = is_same_text(self.queries[name].text, [self.documents[position] for position in positions])
        return tuple(positions) if same else ()

    def sha256(self, split: str) -> dict[str, str]:
        """Return the digests of the three files, by "corpus", "queries" and "qrels" (of the split)."""
        names = {"corpus": CORPUS, "queries": QUERIES, "qrels": qrels_of(split)}
        digests = {key: sha256_file(stored_file(self.folder / name)) for key, name in names.items()}
        return digests if self.vectors is None else digests | dict(self.vectors.sha256)


def read_dataset(
    folder: Path,
    split: str,
    spool: Path,
    earlier_ids: Container[str] = (),
    *,
    own_vectors: bool = False,
    relevant_from: int | None = None,
) -> Dataset:
    """Read and check a data set.

    Args:
        spool: An empty folder for the documents, which has to outlive the result.
        earlier_ids: Ids of documents in an earlier version of the corpus; judgements of documents that have been
            removed since are ignored.
        relevant_from: The lowest grade that answers; None for 1.

    Raises:
        InputError: At the first fault, with file and line.
    """
    opened = OpenDataset.read(folder, split, spool, own_vectors=own_vectors)
    labelled, orphaned = opened.labelled(split, earlier_ids, relevant_from)
    answerable = [query for query in labelled if query.relevant]
    if not answerable:
        qrels = stored_file(folder / qrels_of(split))
        raise InputError(f"{qrels}: no query has a document with score {relevant_from or 1} or more; label some")
    return Dataset(
        name=folder.resolve().name,
        split=split,
        documents=opened.documents,
        answerable=answerable,
        unanswerable=[query for query in labelled if not query.relevant],
        sha256=opened.sha256(split),
        vectors=opened.vectors,
        orphaned=orphaned,
        empty=len(opened.ids.empty),
        written_near_misses=opened.near_misses,
        relevant_from=relevant_from,
    )


def read_people(
    folder: Path,
    splits: Sequence[str],
    spool: Path,
    say: Callable[[str], None],
    earlier_ids: Container[str] = (),
    *,
    own_vectors: bool = False,
) -> Dataset:
    """Read the judged queries of several splits as one, with unjudged and generated queries."""
    # Queries made by a rule or a language model are left out of the judged ones, as they belong to another population.
    # A query judged in two splits counts in the first alone. The weights of each split are scaled to a mean of 1, as
    # the splits were sampled in different ways.
    # Users see only results that the service shows. If none of these is relevant, the query may still have an answer,
    # so it is left out. A query that is in the data set only because users judged it is not a random one, so it is not
    # among the unjudged.
    opened = OpenDataset.read(folder, splits[0], spool, own_vectors=own_vectors)
    judged, seen_only, generated_count = _judged(opened, splits, earlier_ids)
    in_order = [judged[name] for name in opened.queries if name in judged]
    answerable = [query for query in in_order if query.relevant]
    if not answerable:
        raise InputError(
            f"{folder / qrels_of(splits[0])}: no query by people has a document with score 1 or more; judge "
            f"some: taugate judge {folder} --releases DIR"
        )
    if generated_count:
        say(f"left out judged queries that were generated: {generated_count:,}; people phrase queries differently")
    generated = opened.labelled(GENERATED, earlier_ids)[0] if GENERATED in splits_in(folder) else []
    by_users = {line.query for line in judgement_lines(stored_file(folder / qrels_of(TRAFFIC)))}
    unjudged = [
        name
        for name, query in opened.queries.items()
        if (query.origin == "human" and (name not in judged or name in seen_only))
        or (query.origin == "traffic" and name not in judged and name not in by_users)
    ]
    digests = [opened.sha256(split) for split in splits]
    return Dataset(
        name=folder.resolve().name,
        split=splits[0],
        documents=opened.documents,
        answerable=answerable,
        unanswerable=[query for query in in_order if not query.relevant],
        sha256=digests[0] | {"qrels": digest_of_splits([of_split["qrels"] for of_split in digests])},
        vectors=opened.vectors,
        other_queries=OtherQueries(
            splits=tuple(splits),
            unjudged=[opened.queries[name].text for name in unjudged],
            generated=[query for query in generated if query.relevant],
            seen_only=frozenset(seen_only),
            unjudged_own=[opened.own_passages(name) for name in unjudged],
        ),
        empty=len(opened.ids.empty),
        written_near_misses=opened.near_misses,
    )


def _judged(
    opened: OpenDataset, splits: Sequence[str], earlier_ids: Container[str]
) -> tuple[dict[str, LabelledQuery], set[str], int]:
    """Return the judged queries by people, the names of those that only users saw, and the number of generated ones."""
    judged: dict[str, LabelledQuery] = {}
    seen_only: set[str] = set()
    generated_count = 0
    for split in splits:
        queries, _ = opened.labelled(split, earlier_ids)
        from_people = [query for query in queries if query.origin in PEOPLE and query.id not in judged]
        generated_count += sum(query.origin not in PEOPLE for query in queries)
        if split == TRAFFIC:
            from_people = [query for query in from_people if query.relevant]
            seen_only |= {query.id for query in from_people}
        total = sum(query.weight for query in from_people)
        judged |= {query.id: replace(query, weight=query.weight * len(from_people) / total) for query in from_people}
    return judged, seen_only, generated_count


def digest_of_splits(digests: Sequence[str]) -> str:
    """Return one digest for the qrels of several splits."""
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
