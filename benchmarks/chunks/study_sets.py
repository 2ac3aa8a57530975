"""The public data sets of the chunk study, as documents that an import would read, with their queries."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from taugate.ingestion.dataset.beir import LabelledQuery, read_dataset
from taugate.ingestion.importers.records import records_to_documents
from taugate.ingestion.parsed import ParsedDocument
from taugate.retrieval.documents.store import Document

# mixed_large holds parts of other sets of this study. Only queries from these sets are asked of it, so that no query
# counts in two sets.
_ONLY_IN_MIXED = {"medquad", "vaswani_npl", "cranfield", "msmarco_dl_mini", "emanual"}


@dataclass(frozen=True)
class StudySet:
    """One data set of the chunk study.

    Attributes:
        documents: As an import reads them; the key of each is its id.
        queries: Answerable ones, whose relevant documents are positions in `documents`.
    """

    documents: Sequence[ParsedDocument]
    queries: Sequence[LabelledQuery]


def scifact(data: Path) -> StudySet:
    """Read the abstracts with the claims of both splits, train and test.

    Args:
        data: The folder of the public sets.
    """
    documents, queries = _read(data / "scifact", ("train", "test"))
    return StudySet(_parsed(documents), queries)


def passages(name: str) -> Callable[[Path], StudySet]:
    """Return a reader of a set whose documents are taken as they are.

    Args:
        name: Of its folder.
    """

    def read(data: Path) -> StudySet:
        documents, queries = _read(data / name)
        return StudySet(_parsed(documents), queries)

    return read


def covidqa_articles(data: Path) -> StudySet:
    """Rebuild the full articles of COVID-QA from their passages.

    The ids allow it: `k012_003` is the fourth passage of the thirteenth article. The passages lie in the file in the
    order of the article, do not overlap, and were cut between words, so a space joins them.

    Args:
        data: The folder of the public sets.
    """
    documents, queries = _read(data / "covidqa_chunks")
    return articles(documents, queries, lambda document: document.id.partition("_")[0], " ")


def squad_articles(data: Path) -> StudySet:
    """Rebuild the Wikipedia articles of SQuAD 2.0 from their paragraphs, by title.

    Args:
        data: The folder of the public sets.
    """
    documents, queries = _read(data / "squad_v2_dev")
    return articles(documents, queries, lambda document: document.title or "", "\n\n")


def mixed_large(data: Path) -> StudySet:
    """Read the corpus of 14 sets, with the queries of those that the study has nowhere else.

    Args:
        data: Of the public sets.
    """
    documents, queries = _read(data / "mixed_large")
    asked = [query for query in queries if query.id.partition(":")[0] in _ONLY_IN_MIXED]
    return StudySet(_parsed(documents), asked)


# Size and overlap are chosen on the first part; the second part shows what the choice is worth elsewhere.
CHOOSING: dict[str, Callable[[Path], StudySet]] = {
    "scifact": scifact,
    "squad_v2_dev": passages("squad_v2_dev"),
    "squad_v2_dev, articles": squad_articles,
    "squadshifts_reddit": passages("squadshifts_reddit"),
}
REPORTING: dict[str, Callable[[Path], StudySet]] = {
    "pubmedqa_labelled": passages("pubmedqa_labelled"),
    "covidqa, articles": covidqa_articles,
    "covidqa_chunks": passages("covidqa_chunks"),
    "squadshifts_new_wiki": passages("squadshifts_new_wiki"),
    "cosqa": passages("cosqa"),
    "mixed_large": mixed_large,
}


def articles(
    documents: Iterable[Document], queries: Sequence[LabelledQuery], article: Callable[[Document], str], separator: str
) -> StudySet:
    """Join passages to the articles that they were cut from; an article has the highest grade of its passages.

    Args:
        documents: Passages, those of one article side by side and in its order.
        queries: Whose relevant documents are positions of passages.
        article: Names the article of a passage.
        separator: Goes between two passages.
    """
    joined: list[Document] = []
    article_of: list[int] = []
    for name, group in groupby(documents, key=article):
        members = list(group)
        article_of += [len(joined)] * len(members)
        joined.append(replace(members[0], id=name, text=separator.join(each.text for each in members)))
    repeated = [name for name, count in Counter(each.id for each in joined).items() if count > 1]
    if repeated:
        raise ValueError(f"the passages of {repeated[0]!r} do not lie side by side")
    moved = []
    for query in queries:
        grades: dict[int, int] = {}
        for position, grade in query.relevant.items():
            grades[article_of[position]] = max(grade, grades.get(article_of[position], 0))
        moved.append(replace(query, relevant=grades))
    return StudySet(_parsed(joined), moved)


def _read(folder: Path, splits: Sequence[str] = ("test",)) -> tuple[list[Document], list[LabelledQuery]]:
    queries: list[LabelledQuery] = []
    documents: list[Document] = []
    for split in splits:
        with tempfile.TemporaryDirectory() as spool:
            dataset = read_dataset(folder, split, Path(spool))
            documents = [*dataset.documents]
            queries += dataset.answerable
    return documents, queries


def _parsed(documents: Sequence[Document]) -> list[ParsedDocument]:
    """Read documents as `taugate import` reads a file of records."""
    parsed = records_to_documents({"_id": each.id, "title": each.title or "", "text": each.text} for each in documents)
    if [each.key for each in parsed] != [each.id for each in documents]:
        raise ValueError("an import would drop or rename documents of this set")
    return parsed
