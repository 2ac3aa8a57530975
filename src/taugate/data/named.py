"""Data sets that have a name, such as `beir:scifact`: a plug-in reads them, and they become a folder as any other."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import orjson

from taugate.data.corpus import CORPUS
from taugate.data.judgements import HEADER, qrels_of
from taugate.data.queries import QUERIES
from taugate.errors import InputError
from taugate.plugins import load_one
from taugate.storage.folders import make_folder

_NAME = re.compile(r"([a-z_]{2,}):(?!//)(.+)")


class NamedData(NamedTuple):
    """A labelled data set.

    Attributes:
        documents: Id, title and text of each document.
        queries: Id and text of each query.
        qrels: Query id, document id and grade of each judgement, by split.
    """

    documents: Iterable[tuple[str, str, str]]
    queries: Iterable[tuple[str, str]]
    qrels: Mapping[str, Iterable[tuple[str, str, int]]]


# What an entry point of the group `taugate.datasets` is: it reads the data set of a name after the colon.
ReadNamed = Callable[[str], NamedData]


def named(data: str) -> tuple[str, str] | None:
    """Return collection and name of a data set such as `beir:scifact`; None for a path or a URL."""
    match = _NAME.fullmatch(data)
    return None if match is None or Path(data).exists() else (match[1], match[2])


def write_named(data: str, folder: Path) -> None:
    """Write the files of a data set that has a name into a folder.

    Raises:
        InputError: If no installed plug-in reads the collection, or it cannot read the data set.
    """
    collection, _, name = data.partition(":")
    read: ReadNamed = load_one("datasets", collection)
    try:
        documents, queries, qrels = read(name)
        make_folder(folder / "qrels")
        for file, names, rows in ((CORPUS, ("_id", "title", "text"), documents), (QUERIES, ("_id", "text"), queries)):
            with (folder / file).open("wb") as lines:
                lines.writelines(orjson.dumps(dict(zip(names, row, strict=True))) + b"\n" for row in rows)
        for split, judgements in qrels.items():
            table = "".join(f"{query}\t{document}\t{grade}\n" for query, document, grade in judgements)
            (folder / qrels_of(split)).write_text(f"{HEADER}\n{table}", encoding="utf-8")
    except ModuleNotFoundError:
        raise  # of an extra, which the command line names
    except Exception as error:
        reason = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"{data}: cannot be read: {reason[0]}") from error
