"""The data set that an import writes, replaced in one step, and data sets as a source, with queries and judgements."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Literal
from unicodedata import normalize

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from taugate.data.corpus import CORPUS, read_lines_of_corpus
from taugate.data.judgements import (
    NO_DOCUMENT,
    CorpusIds,
    JudgementLine,
    parse_header,
    parse_judgement,
    qrels_of,
    splits_in,
)
from taugate.data.lines import read_lines, read_objects, required_id, required_text, stored_file
from taugate.data.parsed import prose_document
from taugate.data.queries import LOCK, QUERIES, qrels_bytes
from taugate.errors import InputError
from taugate.storage.files import atomic_write, set_mode, sync, sync_folder
from taugate_import.chunker import ImportedDocument
from taugate_import.files import Skipped

RECORD = "import.json"  # how an imported data set was made

PARTIAL = f".{CORPUS}.new"


def is_data_set(source: Path) -> bool:
    """Return whether a source is a data set: a folder that holds corpus.jsonl."""
    return source.is_dir() and stored_file(source / CORPUS).is_file()


def documents_of_data_set(folder: Path, prefix: str) -> Iterator[ImportedDocument | Skipped]:
    """Yield the documents of a data set as they are written, then the other files in its folder."""
    for document in read_lines_of_corpus(stored_file(folder / CORPUS), CorpusIds()):
        yield ImportedDocument(
            prefix + document.id,
            prose_document(document.text, document.title or ""),
            document.metadata,
            as_written=True,
            parent=None if document.parent is None else prefix + document.parent,
            span=document.span,
        )
    data_set_files = {CORPUS, QUERIES, "qrels", RECORD}
    for path in sorted(folder.iterdir()):
        if path.name.removesuffix(".gz") not in data_set_files and not path.name.startswith("."):
            yield Skipped.of(path, "is not one of the data set's files")


@dataclass
class SourceQueries:
    """Queries and judgements of data sets."""

    queries: list[bytes] = field(default_factory=list)
    judgements: dict[str, list[JudgementLine]] = field(default_factory=dict)

    @classmethod
    def read(cls, data_sets: Sequence[tuple[Path, str]]) -> "SourceQueries":
        """Read the queries and judgements of several data sets; a data set without queries.jsonl has none.

        Args:
            data_sets: Folders, each with the prefix for the ids of its documents and queries.
        """
        source = cls()
        for folder, prefix in data_sets:
            queries = stored_file(folder / QUERIES)
            if not queries.is_file():
                continue
            seen: dict[str, int] = {}
            for line, record in read_objects(queries):
                identifier = prefix + required_id(queries, line, record, seen)
                required_text(queries, line, record, "text")
                if record.get("origin") == "near_miss":
                    record["source"] = prefix + required_text(queries, line, record, "source")
                source.queries.append(orjson.dumps(record | {"_id": identifier}) + b"\n")
            for split in splits_in(folder):
                source.judgements.setdefault(split, []).extend(_judgements(folder / qrels_of(split), prefix))
        return source

    def write(self, data: Path) -> None:
        """Write the files of a data set that has no queries yet; existing splits are kept as they are.

        queries.jsonl is written last, so that all its judgements exist once it does.
        """
        for split, lines in self.judgements.items():
            path = data / qrels_of(split)
            path.parent.mkdir(exist_ok=True)
            if not stored_file(path).exists():
                atomic_write(path, qrels_bytes(lines))
        atomic_write(data / QUERIES, b"".join(self.queries))


def _judgements(path: Path, prefix: str) -> Iterator[JudgementLine]:
    path = stored_file(path)
    rows = read_lines(path)
    weighted = parse_header(path, next(rows, (0, ""))[1])
    for line, text in rows:
        query, document, judgement = parse_judgement(path, line, text, weighted=weighted)
        yield JudgementLine(prefix + query, document if document == NO_DOCUMENT else prefix + document, judgement)


class ImportRecord(BaseModel):
    """Content of `import.json`, which records how the corpus beside it was made.

    Attributes:
        chunk_tokens: Maximum size of a chunk in tokens, None if documents were left whole.
        version: Version of taugate that wrote the corpus; "" for versions that did not record it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    sources: list[str]
    encoder: str
    chunk_tokens: int | None
    overlap: int
    version: str = ""


def check_import_target(data: Path) -> None:
    """Check that the target is a folder without a corpus, or with an imported one."""
    if data.exists() and not data.is_dir():
        raise InputError(f"{data}: is a file; name a folder with --to")
    corpus = stored_file(data / CORPUS)
    if not corpus.exists():
        return
    if not (data / RECORD).is_file():
        raise InputError(f"{data}: holds a corpus that was not imported and would be lost; choose another folder")
    try:
        ImportRecord.model_validate_json((data / RECORD).read_bytes())
    except ValidationError as error:
        raise InputError(f"{data / RECORD}: written by another version of taugate; import into a new folder") from error
    if corpus.suffix == ".gz":
        raise InputError(f"{corpus}: cannot replace a compressed corpus; decompress it, or import into a new folder")


def source_name(source: Path) -> str:
    """Return the name of a source, in the Unicode form of ids."""
    return normalize("NFC", source.resolve().name)


def check_names(data: Path, sources: Sequence[Path]) -> None:
    """Check the names of the sources."""
    names = [source_name(source) for source in sources]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(
            f"two sources are named {twice!r}, so their documents would share ids; rename one, or import the folder "
            "that holds both"
        )
    for source in sources:
        if source.is_dir() and data.resolve().is_relative_to(source.resolve()):
            raise InputError(f"{data}: lies inside {source}, and would be imported itself; choose a folder beside it")


def time_of_last_import(data: Path, record: ImportRecord) -> float:
    """Return when another version made the corpus with the same settings, in seconds since 1970; else minus infinity.

    A document whose file is older differs from the corpus only because this version reads it differently.
    """
    path = data / RECORD
    if not path.is_file():
        return -math.inf
    earlier = ImportRecord.model_validate_json(path.read_bytes())
    settings = ("encoder", "chunk_tokens", "overlap")
    same = all(getattr(earlier, name) == getattr(record, name) for name in settings)
    return path.stat().st_mtime if same and earlier.version != version("taugate") else -math.inf


def document_digests(corpus: Path) -> dict[str, bytes]:
    """Return the SHA-256 of each document's lines in a corpus, by id; empty if there is no corpus."""
    if not corpus.exists():
        return {}
    digests: dict[str, hashlib._Hash] = {}
    for _, line in read_objects(corpus):
        identifier = str(line.get("parent") or line.get("_id", ""))
        digests.setdefault(identifier, hashlib.sha256()).update(orjson.dumps(line) + b"\n")
    return {identifier: digest.digest() for identifier, digest in digests.items()}


@contextmanager
def new_corpus(path: Path) -> Iterator[BinaryIO]:
    """Open a file for the new corpus, which is removed unless `publish_corpus` renames it.

    Args:
        path: The file PARTIAL in the folder of the data set, or the null device.
    """
    if path.name == PARTIAL:
        path.unlink(missing_ok=True)  # left by a killed import, possibly another user's
    with path.open("wb") as file:
        try:
            yield file
        finally:
            if path.name == PARTIAL:
                path.unlink(missing_ok=True)


def publish_corpus(spool: BinaryIO, data: Path) -> None:
    """Make the written file `spool` the corpus of the data set in one step; raises OSError if it cannot be written."""
    spool.flush()
    set_mode(spool.fileno(), 0o644)
    sync(spool.fileno())
    (data / PARTIAL).replace(data / CORPUS)
    sync_folder(data)


def remove_unused(data: Path) -> None:
    """Remove a folder that this import created without writing a corpus."""
    if not (data / CORPUS).exists():
        with suppress(OSError):
            (data / LOCK).unlink(missing_ok=True)
            data.rmdir()
