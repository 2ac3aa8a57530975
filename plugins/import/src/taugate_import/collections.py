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


def hugging_face(name: str) -> NamedData:
    """Read a folder or a repository of the hub, with the configurations of BEIR and MTEB.

    They are `corpus`, `queries` or `query`, and `default` or `qrels`; judgements may be a repository `NAME-qrels`, too.
    """
    from datasets import get_dataset_config_names, load_dataset

    has = get_dataset_config_names(name)
    corpus, queries, qrels = (next((each for each in names if each in has), None) for names in _CONFIGURATIONS)
    if corpus is None or queries is None:
        raise InputError(f"it needs the configurations corpus and queries, and has {', '.join(has)}")
    judged = load_dataset(name, qrels) if qrels else load_dataset(f"{name}-qrels")
    return NamedData(
        _documents(chain.from_iterable(load_dataset(name, corpus).values())),
        _queries(chain.from_iterable(load_dataset(name, queries).values())),
        {
            split: [(str(row["query-id"]), str(row["corpus-id"]), int(row["score"])) for row in judged[split]]
            for split in judged
        },
    )


_CONFIGURATIONS = (("corpus",), ("queries", "query"), ("default", "qrels"))


def beir(name: str) -> NamedData:
    """Read a data set of BEIR: from `datasets/NAME`, where its package unpacks data sets, else from the hub."""
    from beir.datasets.data_loader import GenericDataLoader
    from beir.datasets.data_loader_hf import HFDataLoader

    name, _, split = name.partition("/")
    folder = Path("datasets") / name
    if not folder.is_dir():
        corpus, queries, qrels = HFDataLoader(f"BeIR/{name}").load(split or TEST)
        return NamedData(_documents(corpus), _queries(queries), _judged(qrels))
    texts, queries, qrels = GenericDataLoader(str(folder)).load(split or TEST)
    documents = ((key, row["title"] or "", row["text"]) for key, row in texts.items())
    return NamedData(documents, queries.items(), _judged(qrels))


def mteb(name: str) -> NamedData:
    """Read the data set of a retrieval task of MTEB."""
    import mteb as package

    name, _, subset = name.partition("/")
    task: Any = package.get_task(name)
    task.load_data()
    subsets = getattr(task, "dataset", None) or {}
    if (subset or "default") not in subsets:
        raise InputError(f"name one of its subsets after a slash: {', '.join(subsets)}")
    data = subsets[subset or "default"][task.eval_splits[0]]
    return NamedData(_documents(data["corpus"]), _queries(data["queries"]), _judged(data["relevant_docs"]))


def ir_datasets(name: str) -> NamedData:
    """Read a data set of ir_datasets that has queries and judgements, such as `beir/scifact/test`."""
    import ir_datasets as package

    data: Any = package.load(name)
    return NamedData(
        ((each.doc_id, getattr(each, "title", ""), _text(each)) for each in data.docs_iter()),
        ((each.query_id, each.default_text()) for each in data.queries_iter()),
        {TEST: [(each.query_id, each.doc_id, max(each.relevance, 0)) for each in data.qrels_iter()]},
    )


def _text(document: Any) -> str:  # noqa: ANN401 (a tuple of the collection)
    """Return the text of a document without its title, if these are fields of it."""
    return str(document.text) if hasattr(document, "text") else str(document.default_text())


def _documents(rows: Iterable[Any]) -> Iterable[tuple[str, str, str]]:
    return ((_id(row), row.get("title") or "", row["text"] or "") for row in rows)


def _queries(rows: Iterable[Any]) -> Iterable[tuple[str, str]]:
    return ((_id(row), row["text"]) for row in rows)


def _id(row: Any) -> str:  # noqa: ANN401 (a dictionary of the package datasets)
    return str(row["_id"] if "_id" in row else row["id"])


def _judged(qrels: Mapping[str, Mapping[str, float]]) -> dict[str, list[tuple[str, str, int]]]:
    return {
        TEST: [(query, document, int(grade)) for query, grades in qrels.items() for document, grade in grades.items()]
    }
