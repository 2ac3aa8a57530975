"""Where a data set is: a folder, or a URL of object storage, from which its three files are fetched to be read."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from taugate.errors import InputError, ReleaseError, StoreError
from taugate.ingestion.dataset.beir import CORPUS, QUERIES, qrels_of
from taugate.storage.object_store import Store

_FILES = "a data set is corpus.jsonl, queries.jsonl, qrels/<split>.tsv"


def is_url(data: str) -> bool:
    """Whether a data set is to be fetched. A folder may have any other name."""
    return "://" in data


@contextmanager
def local_folder(data: str, split: str) -> Iterator[Path]:
    """The folder of a data set; what was fetched is gone afterwards, also after SIGTERM.

    Raises InputError: the URL cannot be used, the store refuses, a file is not there or changes meanwhile, the disk has
    no room; StoreError: the store does not answer. A fault that is found in a fetched file is told with its URL.
    """
    if not is_url(data):
        yield Path(data)
        return
    with _refusals():
        store = Store(data)
    with tempfile.TemporaryDirectory(prefix="taugate-data-") as scratch:
        folder = Path(scratch) / _name(data)
        with _refusals():
            _fetch(store, folder, split)
        try:
            yield folder
        except InputError as error:
            raise InputError(str(error).replace(str(folder), store.url)) from error


@contextmanager
def _refusals() -> Iterator[None]:
    """What a store refuses is a fault of the URL; that it does not answer is none."""
    try:
        yield
    except StoreError:
        raise
    except ReleaseError as error:
        raise InputError(str(error)) from error


def _name(url: str) -> str:
    """The data set's name, as that of a folder would be."""
    parts = urlsplit(url)
    name = parts.path.rstrip("/").rpartition("/")[2] or parts.netloc
    if name in {"", ".", ".."}:
        raise InputError(f"{url}: ends in no name of a data set; give a URL such as s3://bucket/folder")
    return name


def _fetch(store: Store, folder: Path, split: str) -> None:
    """The smallest file first, so that a wrong split is soon said; all sizes before any content."""
    sizes = {name: _size(store, name) for name in (qrels_of(split), QUERIES, CORPUS)}
    needed, free = sum(sizes.values()) + sizes[CORPUS], shutil.disk_usage(folder.parent).free
    if needed > free:
        raise InputError(
            f"{store.url}: to be read it takes {needed} bytes in {folder.parent.parent}, {free} are free; make room, "
            "or set TMPDIR"
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
        raise InputError(f"{store.url}/{name}: no such object any more; {_FILES}") from error
    if got != size:
        raise InputError(f"{store.url}/{name}: not the {size} bytes that it had before; calibrate when it is complete")


def write_sample(folder: Path) -> None:
    """Write zaragoza-construction-faq (503 questions and answers, English, CC BY 4.0) in the BEIR layout."""
    try:
        import zaragoza_construction_faq
    except ImportError as error:
        raise InputError("the sample data set is not installed; pip install 'taugate[sample]'") from error
    entries = zaragoza_construction_faq.load(lang="en")
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    documents = (
        {"_id": entry["id"], "text": entry["a"], "metadata": {"category": entry["category"]}} for entry in entries
    )
    queries = ({"_id": f"q-{entry['id']}", "text": entry["q"]} for entry in entries)
    (folder / "corpus.jsonl").write_bytes(b"".join(orjson.dumps(document) + b"\n" for document in documents))
    (folder / "queries.jsonl").write_bytes(b"".join(orjson.dumps(query) + b"\n" for query in queries))
    rows = [f"q-{entry['id']}\t{entry['id']}\t1\n" for entry in entries]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8")
