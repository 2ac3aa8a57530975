"""Labelled data sets of well-known collections, read by the packages of these, and so from their caches.

A name may end in `/SPLIT`, or in `/SUBSET` for MTEB. The judgements become the split `test`, also those of another one.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from taugate.data.judgements import TEST
from taugate.data.named import NamedData
from taugate.errors import InputError

_Row = Mapping[str, Any]


def hugging_face(name: str) -> NamedData:
    """Read a folder or a repository of the hub, with the configurations of BEIR and MTEB.

    They are `corpus`, `queries` or `query`, and `default` or `qrels`; judgements may be a repository `NAME-qrels`, too.
    """
    from datasets import get_dataset_config_names, load_dataset

    has = get_dataset_config_names(name)
    chosen = [next((each for each in names if each in has), None) for names in _CONFIGURATIONS]
    if None in chosen[:2]:
        raise InputError(f"it needs the configurations corpus and queries, and has {', '.join(has)}")
    corpus, queries = (chain.from_iterable(load_dataset(name, part).values()) for part in chosen[:2])
    qrels = load_dataset(name, chosen[2]) if chosen[2] else load_dataset(f"{name}-qrels")
    return NamedData(
        map(_document, corpus),
        map(_query, queries),
        {
            split: [(str(row["query-id"]), str(row["corpus-id"]), int(row["score"])) for row in qrels[split]]
            for split in qrels
        },
    )


_CONFIGURATIONS = (("corpus",), ("queries", "query"), ("default", "qrels"))


def beir(name: str) -> NamedData:
    """Read a data set of BEIR: from `datasets/NAME`, where its package unpacks data sets, else from the hub."""
    from beir.datasets.data_loader import GenericDataLoader
    from beir.datasets.data_loader_hf import HFDataLoader

    name, _, split = name.partition("/")
    folder = Path("datasets") / name
    if folder.is_dir():
        corpus, queries, qrels = GenericDataLoader(str(folder)).load(split or TEST)
        rows = (
            ({"_id": key} | row for key, row in corpus.items()),
            ({"_id": key, "text": text} for key, text in queries.items()),
        )
    else:
        *rows, qrels = HFDataLoader(f"BeIR/{name}").load(split or TEST)
    return _split(*rows, qrels)


def mteb(name: str) -> NamedData:
    """Read the data set of a retrieval task of MTEB."""
    import mteb as package

    name, _, subset = name.partition("/")
    task: Any = package.get_task(name)
    task.load_data()
    if not isinstance(getattr(task, "dataset", None), dict) or (subset or "default") not in task.dataset:
        raise InputError(f"name one of its subsets after a slash: {', '.join(getattr(task, 'dataset', None) or ())}")
    data = task.dataset[subset or "default"][task.eval_splits[0]]
    return _split(data["corpus"], data["queries"], data["relevant_docs"])


def ir_datasets(name: str) -> NamedData:
    """Read a data set of ir_datasets that has queries and judgements, such as `beir/scifact/test`."""
    import ir_datasets as package

    data: Any = package.load(name)
    return NamedData(
        ({"_id": each.doc_id, "title": getattr(each, "title", ""), "text": _text(each)} for each in data.docs_iter()),
        ({"_id": each.query_id, "text": each.default_text()} for each in data.queries_iter()),
        {TEST: [(each.query_id, each.doc_id, max(each.relevance, 0)) for each in data.qrels_iter()]},
    )


def _text(document: Any) -> str:  # noqa: ANN401 (a tuple of the collection)
    """Return the text of a document without its title, if these are fields of it."""
    return str(document.text) if hasattr(document, "text") else str(document.default_text())


def _split(corpus: Iterable[_Row], queries: Iterable[_Row], qrels: Mapping[str, Mapping[str, float]]) -> NamedData:
    judged = [(query, document, int(grade)) for query, grades in qrels.items() for document, grade in grades.items()]
    return NamedData(map(_document, corpus), map(_query, queries), {TEST: judged})


def _document(row: _Row) -> dict[str, Any]:
    return _query(row) | {"title": row.get("title") or ""}


def _query(row: _Row) -> dict[str, Any]:
    return {"_id": str(row["_id"] if "_id" in row else row["id"]), "text": row["text"] or ""}
