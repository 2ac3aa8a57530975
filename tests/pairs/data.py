"""The data sets, models and servers of the rows: made once, from the sample, without PyTorch."""

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import zaragoza_construction_faq

from taugate.data.location import write_sample
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.chunked_release import write_chunked
from tests.embedding_server import EmbeddingServer, embedding_server
from tests.fake_encoder import write_fake_encoder
from tests.fake_reranker import write_fake_reranker
from tests.fake_token_encoder import write_fake_token_encoder
from tests.own_vectors import texts_of
from tests.pairs.factors import Row
from tests.rerank_server import RerankServer

FAQ = zaragoza_construction_faq.load(lang="en")
DOCUMENTS = {"whole": 200, "chunks": 110}  # with some 390 chunks
UNANSWERABLE = 45


@dataclass(frozen=True)
class Workshop:
    """Everything that rows share.

    Attributes:
        folder: Where it is.
        encoder: The encoder.
        models: Paths and URLs by their placeholder.
        reranker: The server of the reranker.
        embeddings: The server of embeddings.
    """

    folder: Path
    encoder: ExportedEncoder
    models: dict[str, str]
    reranker: RerankServer
    embeddings: EmbeddingServer

    def filled(self, value: str) -> str:
        """Replace the placeholder in a value."""
        for name, path in self.models.items():
            value = value.replace(f"{{{name}}}", path)
        return value

    def data(self, row: Row) -> Path:
        """Return the data set of a row, made at first use."""
        vectors = row["encoder"] == "vectors"
        name = f"{row['documents']}-{row['unanswerable']}{'-vectors' if vectors else ''}"
        folder = self.folder / "data" / name
        if not folder.exists():
            write_data(folder, str(row["documents"]), some=row["unanswerable"] == "some")
            if vectors:
                self.add_vectors(folder)
        return folder

    def add_vectors(self, data: Path) -> None:
        """Write the vectors of documents and queries beside them."""
        for name, file, role in (("corpus", "vectors", "document"), ("queries", "queries", "query")):
            np.save(data / f"{file}.npy", self.encoder.encode(texts_of(data, f"{name}.jsonl"), role))


@contextmanager
def workshop(folder: Path) -> Iterator[Workshop]:
    """Make the models and start the servers."""
    texts = [entry[field] for entry in FAQ for field in ("q", "a")]
    answers = {entry["q"]: entry["a"][:40] for entry in FAQ}

    def score(query: str, text: str) -> float:
        right = query in answers and answers[query] in text
        return (0.5 if right else 0.1) + (crc32(f"{query}{text}".encode()) % 97) / 300

    encoder = write_fake_encoder(folder / "encoder", texts)
    loaded = ExportedEncoder.load(encoder)
    with RerankServer(score) as reranker, embedding_server(lambda given: loaded.encode(given, "query")) as embeddings:
        models = {
            "encoder": encoder,
            "cross-encoder": write_fake_reranker(folder / "cross-encoder", texts),
            "late-interaction": write_fake_token_encoder(folder / "late-interaction", texts),
            "worse": write_fake_reranker(folder / "worse", texts, sign=-1.0),
            "endpoint": embeddings.url,
            "nobody": "http://127.0.0.1:9",
        }
        yield Workshop(folder, loaded, {name: str(path) for name, path in models.items()}, reranker, embeddings)


def write_data(folder: Path, documents: str, *, some: bool) -> None:
    """Write a data set with metadata, grades, and the splits test, human, traffic and generated."""
    write_sample(folder)
    if documents == "chunks":
        whole = folder.with_name(f"{folder.name}-whole")
        folder.rename(whole)
        write_chunked(whole, folder)
        shutil.rmtree(whole)
    kept = {entry["id"] for entry in FAQ[: DOCUMENTS[documents]]}
    corpus = [row for row in lines(folder / "corpus.jsonl") if row.get("parent", row["_id"]) in kept]
    for row in corpus:
        number = crc32(row.get("parent", row["_id"]).encode())
        row["metadata"] = {"part": "a" if number % 3 else "b", "year": 2000 + number % 20}
    write_lines(folder / "corpus.jsonl", corpus)
    ids = [row["_id"] for row in corpus]
    relevant = [row.split("\t") for row in (folder / "qrels" / "test.tsv").read_text("utf-8").splitlines()[1:]]
    answered = {query: document for query, document, _ in relevant if document in {*ids}}
    rng = random.Random(0)  # noqa: S311 (no secret)
    graded = [(query, document, 2) for query, document in answered.items()]
    graded += [(query, rng.choice(ids), 1) for query in [*answered][::4]]
    unanswerable = [query for query, _, _ in relevant if query not in answered][: UNANSWERABLE if some else 0]
    graded += [(query, rng.choice(ids), 0) for query in unanswerable]
    kept_queries = {query for query, _, _ in graded}
    queries = [row for row in lines(folder / "queries.jsonl") if row["_id"] in kept_queries]
    order = {row["_id"]: place for place, row in enumerate(queries)}
    write_lines(folder / "queries.jsonl", queries)
    parts = {"test": (0, 1, 2, 3), "human": (0, 1, 2), "traffic": (3,), "generated": (1, 2, 3)}
    once = dict.fromkeys((query, document) for query, document, _ in graded)
    grades = {pair: max(score for *found, score in graded if tuple(found) == pair) for pair in once}
    for split, quarters in parts.items():
        rows = [
            f"{query}\t{document}\t{score}\n"
            for (query, document), score in grades.items()
            if order[query] % 4 in quarters
        ]
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), "utf-8")


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


CHANGES = ("boilerplate", "copies", "removed", "split", "rewritten")


def changed(data: Path, folder: Path, way: str) -> Path:
    """Copy a data set with other documents, in one of the ways of `CHANGES`."""
    shutil.copytree(data, folder)
    rows, queries = lines(folder / "corpus.jsonl"), texts_of(folder, "queries.jsonl")
    if way == "boilerplate":
        for row in rows:
            if row["metadata"]["part"] == "a":
                row["text"] = (
                    "This page is provided as is, without warranty of any kind, express or implied. " * 3 + row["text"]
                )
    if way == "copies":  # of the questions that no document answers, or of the first ones
        rows += [
            {"_id": f"copy-{place}", "text": text, "metadata": {"part": "b", "year": 2001}}
            for place, text in enumerate(queries[-40:])
        ]
    if way == "removed":
        gone = {row["_id"] for row in rows[::6] if "parent" not in row}
        rows = [row for row in rows if row["_id"] not in gone]
        for path in (folder / "qrels").glob("*.tsv"):
            head, *labels = path.read_text("utf-8").splitlines()
            left = [label for label in labels if label.split("\t")[1] not in gone]
            path.write_text("\n".join([head, *left]) + "\n", "utf-8")
    if way == "split":
        rows = [
            row | ({"text": row["text"][: max(40, len(row["text"]) // 2)]} if place % 3 == 0 else {})
            for place, row in enumerate(rows)
        ]
        if "parent" in rows[0] or any("span" in row for row in rows):
            for row in rows:
                row.pop("span", None), row.pop("parent", None)
    if way == "rewritten":
        for row in rows[::4]:
            row["text"] = " ".join(reversed(row["text"].split()))
    write_lines(folder / "corpus.jsonl", rows)
    return folder
