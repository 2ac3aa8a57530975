"""Where a data set is: in a folder, or at a URL of object storage, from which its three files are downloaded first."""

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from taugate.errors import InputError, ReleaseError, StoreError
from taugate.ingestion.dataset.beir import CORPUS, QUERIES
from taugate.ingestion.dataset.judgements import GENERATED, HUMAN, TEST, qrels_of, splits_in
from taugate.ingestion.dataset.lines import stored_file
from taugate.storage.object_store import Store

DEFAULT_SPLITS = (TEST, HUMAN, GENERATED)  # the first that is there is calibrated on
_FILES = "a data set is corpus.jsonl, queries.jsonl, qrels/<split>.tsv"
_PACKED_TO = 5  # gzip makes texts three to five times smaller


class _MissingObject(InputError):
    """No object has the name of a file, packed or not."""


def is_url(data: str) -> bool:
    """Tell whether a data set is named by a URL; any other name is that of a folder."""
    return "://" in data


def default_split(data: str, say: Callable[[str], None], use: str = "calibrating on", option: str = "--split") -> str:
    """Choose the split where none is named: test where there is one, else human, else generated.

    Args:
        data: A folder or a URL.
        say: Told which splits hold human queries where the choice falls on generated.
        use: What is done with the split, for that line.
        option: That names another split.

    Raises:
        InputError: Where a folder has none of the three, or the URL cannot be used; StoreError where the store does not
            answer.
    """
    if is_url(data):
        with _refusals_as_input_errors():
            store = Store(data)
            for split in DEFAULT_SPLITS:
                with suppress(_MissingObject):
                    _stored(store, qrels_of(split))
                    return split
        return TEST  # reading it says what is wrong, here and where there is no folder
    if not Path(data).is_dir():
        return TEST
    found = splits_in(Path(data))
    chosen = next((split for split in DEFAULT_SPLITS if split in found), None)
    others = ", ".join(split for split in found if split != GENERATED)
    if chosen == GENERATED and others:
        say(f"{use} the split {GENERATED}; human queries are in {others}: {option} takes them instead")
    if chosen is not None:
        return chosen
    if others:
        raise InputError(f"{data}: no split {', '.join(DEFAULT_SPLITS)} in qrels/; {option} names one of: {others}")
    raise InputError(
        f"{data}: no {qrels_of(TEST)}, so no query is labelled; label some, or make queries from the documents: "
        f"taugate queries {data} --method crop"
    )


@contextmanager
def local_folder(data: str, *splits: str, optional: Collection[str] = ()) -> Iterator[Path]:
    """Yield the folder of a data set; what was downloaded is removed afterwards, also after SIGTERM.

    An InputError on a downloaded file is raised again with its URL in place of its path.

    Args:
        data: A folder or a URL.
        optional: Whose judgements are downloaded where there are any.
        splits: Whose judgements are needed.

    Raises:
        InputError: Where the URL cannot be used, the store refuses, a file is not there or changes meanwhile, or the
            disk has no room; StoreError where the store does not answer.
    """
    with _local(data, (*map(qrels_of, splits), QUERIES, CORPUS), optional) as folder:
        yield folder


@contextmanager
def local_corpus(data: str) -> Iterator[Path]:
    """Yield the corpus of a data set, whose queries and judgements are left where they are; as `local_folder`."""
    with _local(data, (CORPUS,)) as folder:
        if not folder.is_dir():
            what = "is a file, and a data set is a directory" if folder.is_file() else "no such directory"
            raise InputError(f"{folder}: {what}; give the folder that holds {CORPUS}")
        yield stored_file(folder / CORPUS)


@contextmanager
def _local(data: str, names: Sequence[str], optional: Collection[str] = ()) -> Iterator[Path]:
    if not is_url(data):
        yield Path(data)
        return
    with _refusals_as_input_errors():
        store = Store(data)
    with tempfile.TemporaryDirectory(prefix="taugate-data-") as scratch:
        folder = Path(scratch) / _name(data)
        with _refusals_as_input_errors():
            _download_files(store, folder, names, optional)
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


def _download_files(store: Store, folder: Path, names: Sequence[str], optional: Collection[str]) -> None:
    """Download the smallest file first, so that a wrong split is soon found; check all sizes before any content."""
    sizes: dict[str, int] = {}
    for name in names:
        sizes |= _stored(store, name)
    for name in map(qrels_of, optional):
        with suppress(_MissingObject):
            sizes |= _stored(store, name)
    needed, free = sum(sizes.values()) + _unpacked(sizes), shutil.disk_usage(folder.parent).free
    if needed > free:
        raise InputError(
            f"{store.url}: reading it takes {needed} bytes in {folder.parent.parent}, but only {free} are free; free "
            "some space, or set TMPDIR"
        )
    for name, size in sizes.items():
        _download(store, name, folder / name, size)


def _stored(store: Store, name: str) -> dict[str, int]:
    """Return the size in bytes of a file by the name under which it is stored: its own, or that with `.gz` after it."""
    plain = store.size(name)
    try:
        packed = store.size(f"{name}.gz")
    except StoreError:
        raise
    except ReleaseError:
        if plain is None:
            raise
        packed = None  # S3 tells nobody who may not list a bucket that an object is not there, but refuses
    sizes = {each: size for each, size in ((name, plain), (f"{name}.gz", packed)) if size is not None}
    if not sizes:
        raise _MissingObject(f"{store.url}/{name}: no such object; {_FILES}, and --split names the last of them")
    if len(sizes) > 1:
        other = f"{name.rpartition('/')[2]}.gz"
        raise InputError(f"{store.url}/{name}: {other} is there as well, and they may differ; remove one of the two")
    return sizes


def _unpacked(sizes: Mapping[str, int]) -> int:
    """Return the bytes that the documents take on the disk, about.

    Args:
        sizes: Of the files, by name.
    """
    return sizes[CORPUS] if CORPUS in sizes else sizes[f"{CORPUS}.gz"] * _PACKED_TO


def _download(store: Store, name: str, path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("wb") as file:
            got, _ = store.download(name, file, size)
    except FileNotFoundError as error:
        raise InputError(f"{store.url}/{name}: the object is gone; {_FILES}") from error
    if got != size:
        raise InputError(f"{store.url}/{name}: no longer the {size} bytes that it had; calibrate once it is complete")
