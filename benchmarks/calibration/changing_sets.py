"""Small parts of public data sets, with queries that are kept aside, and five ways in which their documents change."""

import json
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

FIELD = "part"  # of the metadata: a or b
CHANGES = ("boilerplate", "added", "removed", "split", "rewritten")
_BOILERPLATE = (
    "This page is provided as is, without warranty of any kind, and is subject to the terms stated at the end. "
)
_REPEATED = 4
_NEAREST = 50  # documents of a query
_POOL = 8000  # other documents that may be added

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Questions:
    """Labelled queries, and as many that no calibration sees.

    Attributes:
        texts: Texts of all queries by their ids.
        relevant: Ids of the relevant documents of the labelled queries, by query.
        unanswerable: Ids of the labelled queries without an answer.
        unseen: Like `relevant`, of the queries that are kept aside.
        unseen_unanswerable: Like `unanswerable`.
    """

    texts: Mapping[str, str]
    relevant: Mapping[str, list[str]]
    unanswerable: Sequence[str]
    unseen: Mapping[str, list[str]]
    unseen_unanswerable: Sequence[str]

    def on(self, rows: Rows) -> "Questions":
        """Remove documents, and the queries that only they answer."""
        there = {row["_id"] for row in rows}
        left = [
            {query: kept for query, ids in every.items() if (kept := [name for name in ids if name in there])}
            for every in (self.relevant, self.unseen)
        ]
        return Questions(self.texts, left[0], self.unanswerable, left[1], self.unseen_unanswerable)

    def write(self, folder: Path, rows: Rows, *, few: int = 0) -> Path:
        """Write a data set in which so many queries are judged by people, and the others generated; 0 for one split."""
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "qrels").mkdir(parents=True)
        labelled = [*self.relevant, *self.unanswerable]
        _write_lines(folder / "corpus.jsonl", rows)
        _write_lines(folder / "queries.jsonl", [{"_id": query, "text": self.texts[query]} for query in labelled])
        judged = [(query, name, 1) for query, ids in self.relevant.items() for name in ids]
        judged += [(query, "-", 0) for query in self.unanswerable]
        people = {*labelled[:few]} if few else {*labelled}
        for split, queries in (("human" if few else "test", people), ("generated", {*labelled} - people)):
            lines = [f"{query}\t{name}\t{grade}\n" for query, name, grade in judged if query in queries]
            if lines:
                (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{''.join(lines)}", "utf-8")
        return folder


@dataclass(frozen=True)
class ChangingSet:
    """A part of a data set, and documents that may be added to it.

    Attributes:
        questions: Its queries.
        rows: Its documents.
        others: Other documents, in random order.
    """

    questions: Questions
    rows: Rows
    others: Rows

    @classmethod
    def read(
        cls, folder: Path, split: str, queries: int, unanswerable: int, others: int, seed: int = 0
    ) -> "ChangingSet":
        """Draw queries about different documents, and further documents.

        If no query of the set is unanswerable, the documents of some are taken out.
        """
        rng = random.Random(seed)  # noqa: S311 (no secret)
        corpus = {row["_id"]: row for row in _read_lines(folder / "corpus.jsonl")}
        texts = {row["_id"]: row["text"] for row in _read_lines(folder / "queries.jsonl")}
        relevant, without = dict[str, list[str]](), list[str]()
        for line in (folder / "qrels" / f"{split}.tsv").read_text("utf-8").splitlines()[1:]:
            query, name, grade = line.split("\t")[:3]
            relevant.setdefault(query, []).extend([name] if int(grade) > 0 else [])
        without = sorted(query for query, ids in relevant.items() if not ids)
        answerable = sorted(query for query, ids in relevant.items() if ids)
        rng.shuffle(without)
        rng.shuffle(answerable)
        if not without:
            without, answerable = answerable[: 2 * unanswerable], answerable[2 * unanswerable :]
            gone = {name for query in without for name in relevant[query]}
            corpus = {name: row for name, row in corpus.items() if name not in gone}
            answerable = [query for query in answerable if not gone & {*relevant[query]}]
        chosen = (
            {query: relevant[query] for query in _about_different(answerable[start::2], relevant, queries)}
            for start in (0, 1)
        )
        labelled, unseen = chosen
        names = sorted({name for ids in (*labelled.values(), *unseen.values()) for name in ids})
        pool = sorted(corpus.keys() - {*names})
        rng.shuffle(pool)
        rows = [{**_plain(corpus[name]), "metadata": {FIELD: rng.choice("ab")}} for name in (*names, *pool[:_POOL])]
        size = len(names) + others
        own = without[:unanswerable], without[unanswerable : 2 * unanswerable]
        questions = Questions(texts, labelled, own[0], unseen, own[1])
        return cls(questions, rows[:size], rows[size:])

    def changed(self, way: str, seed: int = 0) -> Rows:
        """Change a third of the documents, those of one stratum, or the number of documents."""
        rng = random.Random(seed)  # noqa: S311 (no secret)
        some = {row["_id"] for row in rng.sample(self.rows, len(self.rows) // 3)}
        if way == "boilerplate":
            return [
                {**row, "text": _BOILERPLATE * _REPEATED + row["text"]} if row["metadata"][FIELD] == "a" else row
                for row in self.rows
            ]
        if way == "added":
            return [*self.rows, *self.nearest()[: len(self.rows)]]
        if way == "removed":
            return [row for row in self.rows if row["_id"] not in some]
        edit = {"split": _halves, "rewritten": _rewritten}[way]
        return [changed for row in self.rows for changed in (edit(row, rng) if row["_id"] in some else [row])]

    def nearest(self) -> Rows:
        """Return the other documents, those that share most words with any query first."""
        words = TfidfVectorizer(sublinear_tf=True, stop_words="english")
        documents = words.fit_transform(f"{row['title']} {row['text']}" for row in self.others)
        queries = [*self.questions.unanswerable, *self.questions.unseen_unanswerable, *self.questions.relevant]
        scores = (words.transform([self.questions.texts[query] for query in queries]) @ documents.T).toarray()
        ranks = np.argsort(-scores, axis=1, kind="stable")[:, :_NEAREST].T.ravel().tolist()
        return [self.others[place] for place in dict.fromkeys([*ranks, *range(len(self.others))])]


def _about_different(queries: Sequence[str], relevant: Mapping[str, list[str]], count: int) -> Iterator[str]:
    """Yield `count` queries that share no relevant document, so that they are independent draws."""
    seen = set[str]()
    for query in queries:
        if count and not seen & {*relevant[query]}:
            seen.update(relevant[query])
            count -= 1
            yield query


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {"_id": row["_id"], "title": row.get("title", ""), "text": row["text"]}


def _halves(row: dict[str, Any], rng: random.Random) -> Rows:
    words = row["text"].split()
    middle = len(words) // 2
    first, second = " ".join(words[:middle]) or "-", " ".join(words[middle:]) or "-"
    return [{**row, "text": first}, {**row, "_id": f"{row['_id']}-2", "text": second}]


def _rewritten(row: dict[str, Any], rng: random.Random) -> Rows:
    """Keep half of the words, in another order."""
    words = row["text"].split()
    return [{**row, "text": " ".join(rng.sample(words, max(min(len(words), 8), len(words) // 2))) or "-"}]


def _read_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _write_lines(path: Path, rows: Rows) -> None:
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), "utf-8")
