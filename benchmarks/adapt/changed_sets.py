"""Changed copies of public data sets: with parents, with fewer documents, or with labels that mean nothing.

Each function writes corpus, queries and the split test of a data set to an empty folder that has a folder qrels.
"""

from pathlib import Path

import numpy as np
import orjson

from taugate.ingestion.dataset.beir import CORPUS, QUERIES
from taugate.ingestion.dataset.judgements import HEADER, qrels_of
from taugate.ingestion.queries.crop import sampling_key

_OTHER = "squad_v2_dev"  # whose questions stand for those about another corpus


def by_paper(source: Path, target: Path) -> None:
    """Copy a corpus of chunks, and name the paper of each, which its id begins with, as its parent."""
    _write(target / CORPUS, [each | {"parent": each["_id"].split("_")[0]} for each in _read(source / CORPUS)])
    _copy(source, target, QUERIES, qrels_of("test"))


def shuffled_labels(source: Path, target: Path) -> None:
    """Copy a data set, and give the labels of each query to another one."""
    _copy(source, target, CORPUS, QUERIES)
    rows = _rows(source)
    asked = [*dict.fromkeys(row[0] for row in rows)]
    others = dict(zip(asked, np.random.default_rng(0).permutation(asked).tolist(), strict=True))
    _write_rows(target, [[others[query], *rest] for query, *rest in rows])


def labels_of_another(source: Path, target: Path) -> None:
    """Copy a data set, and put questions about another corpus in the place of its queries, whose labels they take."""
    _copy(source, target, CORPUS, qrels_of("test"))
    queries, others = _read(source / QUERIES), _read(source.parent / _OTHER / QUERIES)
    asked = {own["_id"]: other["text"] for own, other in zip(queries, others, strict=False)}  # the shorter list ends it
    _write(target / QUERIES, [{"_id": name, "text": text} for name, text in asked.items()])
    _write_rows(target, [row for row in _rows(source) if row[0] in asked])


def fewer_documents(source: Path, target: Path, count: int) -> None:
    """Copy a random sample of a corpus, with the queries that only documents of it answer.

    Args:
        count: Documents of the sample, the same for the same corpus.
    """
    corpus = _read(source / CORPUS)
    kept = {each["_id"] for each in sorted(corpus, key=lambda each: sampling_key(each["_id"], 0))[:count]}
    _write(target / CORPUS, [each for each in corpus if each["_id"] in kept])
    rows = _rows(source)
    lost = {row[0] for row in rows if row[1] not in kept}
    _copy(source, target, QUERIES)
    _write_rows(target, [row for row in rows if row[0] not in lost])


def _copy(source: Path, target: Path, *names: str) -> None:
    for name in names:
        (target / name).write_bytes((source / name).read_bytes())


def _read(path: Path) -> list[dict[str, str]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def _write(path: Path, records: list[dict[str, str]]) -> None:
    path.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in records))


def _rows(folder: Path) -> list[list[str]]:
    return [line.split("\t") for line in (folder / qrels_of("test")).read_text().splitlines()[1:]]


def _write_rows(target: Path, rows: list[list[str]]) -> None:
    lines = ["\t".join(row) for row in rows]
    (target / qrels_of("test")).write_text("\n".join([HEADER, *lines]) + "\n")
