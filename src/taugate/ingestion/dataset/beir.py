"""A labelled data set in the BEIR layout (docs/calibration.md): a corpus, queries, and the judgements of a split."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError
from taugate.ingestion.dataset.corpus import CORPUS, read_corpus, spool_corpus
from taugate.ingestion.dataset.first_lines import check_folder
from taugate.ingestion.dataset.judgements import CorpusIds, drop_orphans, judged_queries, qrels_of, read_qrels
from taugate.ingestion.dataset.labelled_queries import LabelledQueries, OtherQueries
from taugate.ingestion.dataset.labelled_query import LabelledQuery
from taugate.ingestion.dataset.lines import stored_file
from taugate.ingestion.dataset.off_topic import OffTopicQuestion, off_topic_questions
from taugate.ingestion.dataset.own_documents import is_same_text, left_out_notes
from taugate.ingestion.dataset.queries import QUERIES, DatasetQuery, read_queries
from taugate.ingestion.dataset.vectors import DatasetVectors
from taugate.retrieval.documents.store import DocumentStore
from taugate.storage.files import sha256_file

__all__ = ["Dataset", "LabelledQuery", "OpenDataset", "OtherQueries", "read_corpus", "read_dataset", "spool_corpus"]


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
    """A data set whose documents and queries have been read; its splits are read one by one.

    Attributes:
        folder: Folder of the data set.
        documents: Documents in the order of corpus.jsonl.
        ids: Ids of the documents.
        queries: Queries by id, in the order of queries.jsonl.
        vectors: See Dataset.
    """

    folder: Path
    documents: DocumentStore
    ids: CorpusIds
    queries: Mapping[str, DatasetQuery]
    vectors: DatasetVectors | None = None

    @classmethod
    def read(cls, folder: Path, split: str, spool: Path, *, own_vectors: bool = False) -> Self:
        """Read and check the documents and the queries.

        Args:
            folder: Folder of the data set.
            split: Split to name in errors.
            spool: An empty folder for the documents, which has to outlive the result.
            own_vectors: Whether to read the vectors that come with the data set.

        Raises:
            InputError: At the first fault, with file and line.
        """
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

        Args:
            split: Split whose judgements are read.
            earlier_ids: As in `read_dataset`.
            relevant_from: The lowest grade that answers; None for 1.

        Raises:
            InputError: If the file of the split cannot be read; LineError if a line of it is invalid.
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
        """Return the positions of the passages that are the query itself.

        Args:
            name: Id of the query.
        """
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
        folder: Folder of the data set.
        split: Split whose judgements are read.
        spool: An empty folder for the documents, which has to outlive the result.
        earlier_ids: Ids of documents in an earlier version of the corpus; judgements of documents that have been
            removed since are ignored.
        own_vectors: As in `OpenDataset.read`.
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
