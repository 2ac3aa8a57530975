"""Location of a data set: a folder, the sample, a name, or a URL of object storage, from which files are downloaded."""

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from taugate.data.corpus import CORPUS
from taugate.data.judgements import GENERATED, HEADER, HUMAN, TEST, qrels_of, splits_in
from taugate.data.lines import stored_file
from taugate.data.named import named, write_named
from taugate.data.queries import QUERIES, check_folder
from taugate.data.vectors import VECTOR_FILES
from taugate.errors import InputError, ReleaseError, StoreError
from taugate.storage.folders import make_folder
from taugate.storage.object_store import Store

DEFAULT_SPLITS = (TEST, HUMAN, GENERATED)  # the first one that exists is used
_FILES = "a data set is corpus.jsonl, queries.jsonl, qrels/<split>.tsv"
_PACKED_TO = 5  # gzip makes texts three to five times smaller


class _MissingObject(InputError):
    """No object has the name of a file, packed or not."""


def is_url(data: str) -> bool:
    """Return whether a data set is named by a URL, not by a folder."""
    return "://" in data


def default_split(data: str, say: Callable[[str], None], use: str = "calibrating on", option: str = "--split") -> str:
    """Choose a split if the user names none: the first of test, human and generated that exists."""
    if is_url(data):
        with _refusals_as_input_errors():
            store = Store(data)
            for split in DEFAULT_SPLITS:
                with suppress(_MissingObject):
                    _stored(store, qrels_of(split))
                    return split
        return TEST  # reading it raises the error that names the problem, as for a missing folder
    if not Path(data).is_dir():
        return TEST
    splits = splits_in(Path(data))
    chosen = next((split for split in DEFAULT_SPLITS if split in splits), None)
    other_splits = ", ".join(split for split in splits if split != GENERATED)
    if chosen == GENERATED and other_splits:
        say(f"{use} the split {GENERATED}; human queries are in {other_splits}: choose one with {option}")
    if chosen is not None:
        return chosen
    if other_splits:
        raise InputError(
            f"{data}: no split {', '.join(DEFAULT_SPLITS)} in qrels/; {option} names one of: {other_splits}"
        )
    raise InputError(
        f"{data}: no {qrels_of(TEST)}, so no query is labelled; label some, or make queries from the documents: "
        f"taugate queries {data} --method crop"
    )


@contextmanager
def local_folder(data: str, *splits: str, optional: Collection[str] = (), own_vectors: bool = False) -> Iterator[Path]:
    """Yield the folder of a data set; downloaded or converted files are removed afterwards, also after SIGTERM.

    An InputError on a downloaded file is raised again with its URL in place of its path.

    Args:
        data: A folder, a URL or a name such as `beir:scifact`.
        optional: Splits whose judgements are downloaded if they exist.
        splits: Splits whose judgements are needed.
        own_vectors: Whether the vectors of documents and queries are downloaded if they exist.
    """
    further = [*map(qrels_of, optional), *(VECTOR_FILES if own_vectors else ())]
    with _local(data, (*map(qrels_of, splits), QUERIES, CORPUS), further) as folder:
        yield folder


@contextmanager
def local_corpus(data: str) -> Iterator[Path]:
    """Yield the corpus of a data set, without downloading its queries and judgements; errors as in `local_folder`."""
    with _local(data, (CORPUS,)) as folder:
        check_folder(folder)
        yield stored_file(folder / CORPUS)


@contextmanager
def _local(data: str, names: Sequence[str], optional: Collection[str] = ()) -> Iterator[Path]:
    if named(data) is not None:
        with tempfile.TemporaryDirectory(prefix="taugate-data-") as scratch:
            folder = Path(scratch) / data.rpartition(":")[2].strip("/").rpartition("/")[2]
            write_named(data, folder)
            yield folder
        return
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
    """Turn refusals of the store into InputError, as the URL is at fault; keep StoreError (no response)."""
    try:
        yield
    except StoreError:
        raise
    except ReleaseError as error:
        raise InputError(str(error)) from error


def _name(url: str) -> str:
    """Return the data set's name: the last part of the URL, as for a folder."""
    parts = urlsplit(url)
    name = parts.path.rstrip("/").rpartition("/")[2] or parts.netloc
    if name in {"", ".", ".."}:
        raise InputError(f"{url}: does not end in the name of a data set; give a URL such as s3://bucket/folder")
    return name


def _download_files(store: Store, folder: Path, names: Sequence[str], optional: Collection[str]) -> None:
    """Download the smallest file first, so that a wrong split is soon noticed; check all sizes before any content."""
    sizes: dict[str, int] = {}
    for name in names:
        sizes |= _stored(store, name)
    for name in optional:
        with suppress(_MissingObject):
            sizes |= _stored(store, name)
    unpacked = sizes[CORPUS] if CORPUS in sizes else sizes[f"{CORPUS}.gz"] * _PACKED_TO
    needed, free = sum(sizes.values()) + unpacked, shutil.disk_usage(folder.parent).free
    if needed > free:
        raise InputError(
            f"{store.url}: reading it takes {needed} bytes in {folder.parent.parent}, but only {free} are free; free "
            "some space, or set TMPDIR"
        )
    for name, size in sizes.items():
        _download(store, name, folder / name, size)


def _stored(store: Store, name: str) -> dict[str, int]:
    """Return the size in bytes of a file by its name in the store: `name`, or `name` with `.gz` after it."""
    plain = store.size(name)
    try:
        packed = store.size(f"{name}.gz")
    except StoreError:
        raise
    except ReleaseError:
        if plain is None:
            raise
        packed = None  # without permission to list the bucket, S3 denies access instead of reporting a missing object
    candidates = ((name, plain), (f"{name}.gz", packed))
    sizes = {candidate: size for candidate, size in candidates if size is not None}
    if not sizes:
        raise _MissingObject(f"{store.url}/{name}: no such object; {_FILES}, and --split names the last of them")
    if len(sizes) > 1:
        other = f"{name.rpartition('/')[2]}.gz"
        raise InputError(f"{store.url}/{name}: {other} also exists, and the two may differ; remove one of them")
    return sizes


def _download(store: Store, name: str, path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("wb") as file:
            received, _ = store.download(name, file, size)
    except FileNotFoundError as error:
        raise InputError(f"{store.url}/{name}: the object has been removed; {_FILES}") from error
    if received != size:
        raise InputError(
            f"{store.url}/{name}: size changed from {size} bytes during the download; retry once it is complete"
        )


def check_sample_installed() -> None:
    """Check that the extra with the sample data set is installed. Raises InputError if it is not installed."""
    if find_spec("zaragoza_construction_faq") is None:
        raise InputError("the sample data set is not installed; pip install 'taugate[calibration,sample]'")


def write_sample(folder: Path) -> None:
    """Write zaragoza-construction-faq (503 questions and answers, English, CC BY 4.0) into a folder."""
    check_sample_installed()
    import zaragoza_construction_faq

    entries = zaragoza_construction_faq.load(lang="en")
    make_folder(folder / "qrels")
    documents = (
        {"_id": entry["id"], "text": entry["a"], "metadata": {"category": entry["category"]}} for entry in entries
    )
    queries = ({"_id": f"q-{entry['id']}", "text": entry["q"]} for entry in entries)
    (folder / CORPUS).write_bytes(b"".join(orjson.dumps(document) + b"\n" for document in documents))
    (folder / QUERIES).write_bytes(b"".join(orjson.dumps(query) + b"\n" for query in queries))
    rows = [f"q-{entry['id']}\t{entry['id']}\t1\n" for entry in entries]
    (folder / qrels_of("test")).write_text(f"{HEADER}\n" + "".join(rows), encoding="utf-8")
