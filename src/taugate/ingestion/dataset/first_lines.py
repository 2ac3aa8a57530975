"""Looks at the files of a data set first, so that a mistyped path or a wrong header is an error at once."""

from pathlib import Path

from taugate.errors import InputError
from taugate.ingestion.dataset.judgements import TEST, parse_header, qrels_of
from taugate.ingestion.dataset.lines import read_lines, read_objects, stored_file
from taugate.ingestion.dataset.queries import QUERIES

_CORPUS = "corpus.jsonl"


def check_folder(folder: Path, split: str = TEST) -> None:
    """Raise InputError if a data set is not a folder.

    Args:
        folder: Folder of the data set.
        split: Split to name in errors.
    """
    if folder.is_file():
        raise InputError(
            f"{folder}: is a file, and a data set is a directory; give the directory that holds {_CORPUS}, {QUERIES} "
            f"and {qrels_of(split)}" + (f", here {folder.parent}" if folder.name in {_CORPUS, QUERIES} else "")
        )
    if not folder.is_dir():
        raise InputError(f"{folder}: no such directory; give the folder that holds {_CORPUS}")


def check_first_lines(folder: Path, split: str | None) -> None:
    """Raise InputError if a file of a data set is missing or begins with something else.

    Args:
        folder: Folder of the data set, which exists.
        split: Split whose judgements are read, if they exist; None for documents alone.
    """
    labelled = split is not None and (folder / "qrels").is_dir()  # else the command says how to label queries
    for name in (_CORPUS, QUERIES) if labelled else (_CORPUS,):
        next(read_objects(stored_file(folder / name)), None)
    if split is not None and (path := stored_file(folder / qrels_of(split))).is_file():
        for _, text in read_lines(path):
            parse_header(path, text)
            break
