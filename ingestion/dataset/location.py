"""Where a data set is: in a folder, or at a URL of object storage, from which its three files are downloaded first."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from taugate.errors import InputError, ReleaseError, StoreError
from taugate.ingestion.dataset.beir import CORPUS, GENERATED, HUMAN, QUERIES, TEST, qrels_of
from taugate.storage.object_store import Store

DEFAULT_SPLITS = (TEST, HUMAN, GENERATED)  # the first that is there is calibrated on
_FILES = "a data set is corpus.jsonl, queries.jsonl, qrels/<split>.tsv"


def is_url(data: str) -> bool:
    """Tell whether a data set is named by a URL; any other name is that of a folder."""
    return "://" in data


def default_split(data: str, say: Callable[[str], None]) -> str:
    """Choose the split where none is named: test where there is one, else human, else generated.

    data: a folder or a URL. say: told which splits hold human queries where the choice falls on generated. Raises
    InputError where a folder has none of the three, or the URL cannot be used; StoreError where the store does not
    answer.
    """
    if is_url(data):
        with _refusals_as_input_errors():
            store = Store(data)
            there = (split for split in DEFAULT_SPLITS if store.size(qrels_of(split)) is not None)
            return next(there, TEST)  # reading it says what is wrong, here and where there is no folder
    if not Path(data).is_dir():
        return TEST
    found = {file.stem for file in Path(data).glob(qrels_of("*"))}
    chosen = next((split for split in DEFAULT_SPLITS if split in found), None)
    others = ", ".join(sorted(found - {GENERATED}))
    if chosen == GENERATED and others:
        say(f"calibrating on the split {GENERATED}; human queries are in {others}: --split takes them instead")
    if chosen is not None:
        return chosen
    if others:
        raise InputError(f"{data}: no split {', '.join(DEFAULT_SPLITS)} in qrels/; --split names one of: {others}")
    raise InputError(
        f"{data}: no {qrels_of(TEST)}, so no query is labelled; label some, or make queries from the documents: "
        f"taugate queries {data} --method crop"
    )


@contextmanager
def local_folder(data: str, split: str) -> Iterator[Path]:
    """Yield the folder of a data set; what was downloaded is removed afterwards, also after SIGTERM.

    An InputError on a downloaded file is raised again with its URL in place of its path.

    data: a folder or a URL. split: whose judgements are needed. Raises InputError where the URL cannot be used, the
    store refuses, a file is not there or changes meanwhile, or the disk has no room; StoreError where the store does
    not answer.
    """
    if not is_url(data):
        yield Path(data)
        return
    with _refusals_as_input_errors():
        store = Store(data)
    with tempfile.TemporaryDirectory(prefix="taugate-data-") as scratch:
        folder = Path(scratch) / _name(data)
        with _refusals_as_input_errors():
            _download_files(store, folder, split)
        try:
            yield folder
        except InputError as error:
            raise InputError(str(error).replace(str(folder), store.url)) from error


@contextmanager
def _refusals_as_input_errors() -> Iterator[None]:
    """Raise a refusal of the store as an InputError, as it is a fault of the URL; no answer stays a StoreError."""
    try:
        yield
    except StoreError:
        raise
    except ReleaseError as error:
        raise InputError(str(error)) from error


def _name(url: str) -> str:
    """Return the data set's name: the last part of the URL, as of a folder."""
    parts = urlsplit(url)
    name = parts.path.rstrip("/").rpartition("/")[2] or parts.netloc
    if name in {"", ".", ".."}:
        raise InputError(f"{url}: does not end in the name of a data set; give a URL such as s3://bucket/folder")
    return name


def _download_files(store: Store, folder: Path, split: str) -> None:
    """Download the smallest file first, so that a wrong split is soon found; check all sizes before any content."""
    sizes = {name: _size(store, name) for name in (qrels_of(split), QUERIES, CORPUS)}
    needed, free = sum(sizes.values()) + sizes[CORPUS], shutil.disk_usage(folder.parent).free
    if needed > free:
        raise InputError(
            f"{store.url}: reading it takes {needed} bytes in {folder.parent.parent}, but only {free} are free; free "
            "some space, or set TMPDIR"
        )
    for name, size in sizes.items():
        _download(store, name, folder / name, size)


def _size(store: Store, name: str) -> int:
    size = store.size(name)
    if size is None:
        raise InputError(f"{store.url}/{name}: no such object; {_FILES}, and --split names the last of them")
    return size


def _download(store: Store, name: str, path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("wb") as file:
            got, _ = store.download(name, file, size)
    except FileNotFoundError as error:
        raise InputError(f"{store.url}/{name}: the object is gone; {_FILES}") from error
    if got != size:
        raise InputError(f"{store.url}/{name}: no longer the {size} bytes that it had; calibrate once it is complete")
