"""Parsing of one file by its kind, in a separate process.

Files may come from anyone. In its own process a parser can use neither the importer's memory nor its time, and if it
crashes, only one file is lost.
"""

import dataclasses
import gzip
import io
import math
import multiprocessing
import os
import resource
import signal
import time
import zlib
from collections.abc import Container
from concurrent.futures import TimeoutError as ParserTimeout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pebble import ProcessExpired, ProcessPool
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from taugate import plugins
from taugate.data.parsed import ParsedDocument, ParsedFile, Parser, UnreadableFile
from taugate.errors import InputError
from taugate.storage.files import open_regular
from taugate_import.delimited import parse_delimited
from taugate_import.email_message import parse_email, parse_mailbox
from taugate_import.html import parse_html
from taugate_import.json_documents import parse_json, parse_json_lines
from taugate_import.markdown import parse_markdown_file
from taugate_import.office_package import parse_epub
from taugate_import.open_document import parse_open_document
from taugate_import.pdf import parse_pdf
from taugate_import.plain_text import SUFFIXES as SOURCE_CODE
from taugate_import.plain_text import decode_text, parse_captions, parse_code, parse_plain_text
from taugate_import.records import parse_parquet
from taugate_import.rich_text import parse_rtf
from taugate_import.slides import parse_pptx
from taugate_import.spreadsheets import parse_spreadsheet
from taugate_import.text_markup import parse_asciidoc, parse_notebook, parse_org, parse_rst, parse_xml
from taugate_import.word import parse_docx
from taugate_import.word_share import lost_numbers, share_kept

MAX_FILE_BYTES = 64 << 20  # unpacked: the longest books have a tenth of it
_MAX_SECONDS = (
    60  # of processor time for one file, so that the corpus depends on no load; pdfium reads 2,000 pages in five
)
_MAX_WAIT = 10 * _MAX_SECONDS  # if the parser waits for something
_MAX_MEMORY = 800 << 20  # of the parser's process, so that importer and parser use less than 1 GiB
_OUT_OF_MEMORY = 77  # exit status of the parser's process, used by no signal and no library
_PARSED_FILE = TypeAdapter(ParsedFile)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """The documents of a file, and what of its words is in them.

    Attributes:
        lost_numbers: Words with a digit that are in no document as the file shows them.
    """

    documents: list[ParsedDocument]
    share: float
    notes: tuple[str, ...]
    lost_numbers: tuple[str, ...] = ()


def _text(raw: bytes) -> ParsedFile:
    decoded = decode_text(raw)
    return ParsedFile([parse_plain_text(decoded.text)], decoded.text, decoded.notes)


def _markdown(raw: bytes) -> ParsedFile:
    decoded = decode_text(raw)
    return dataclasses.replace(parse_markdown_file(decoded.text), notes=decoded.notes)


def _attached(name: str, raw: bytes) -> ParsedFile:
    """Read a file that is attached to an email."""
    path = Path(name)
    kind = kind_of(path)
    if kind is None:
        raise UnreadableFile("is of a kind that is not read")
    content = _unpack(raw) if path.suffix.lower() == ".gz" else raw
    if not content.strip():
        raise UnreadableFile("is empty")
    return _parse(kind, content)


def _parse(kind: str, raw: bytes) -> ParsedFile:
    try:
        return _parse_by_plugin(kind[1:], raw) if kind[1:] in _of_plugins() else PARSERS[kind](raw)
    except RecursionError as error:
        raise UnreadableFile("is nested too deeply") from error


@cache
def _of_plugins() -> Container[str]:
    """Return the suffixes of files that other plug-ins read, even if there is a parser of ours."""
    return plugins.provided("importers")


@cache
def _parser_of_plugin(suffix: str) -> Parser:
    try:
        parser: Parser = plugins.load_one("importers", suffix)
    except ModuleNotFoundError as error:
        plugin = plugins.distribution("importers", suffix)
        raise UnreadableFile(f"cannot be read: {error.name} is not installed, which {plugin} needs") from error
    except InputError as error:
        raise UnreadableFile(f"cannot be read: {error}") from error
    return parser


def _parse_by_plugin(suffix: str, raw: bytes) -> ParsedFile:
    parsed = _parser_of_plugin(suffix)(raw)
    try:
        _PARSED_FILE.dump_python(parsed, warnings="error")  # or a wrong type would fail later, and end the import
    except PydanticSerializationError as error:
        raise UnreadableFile("cannot be read: its plug-in returned something other than a ParsedFile") from error
    return parsed


# By suffix. A file without a suffix, such as README, is read as text if it is text.
PARSERS: dict[str, Parser] = {
    **dict.fromkeys((".txt", ".text", ""), _text),
    **{".rst": parse_rst, ".org": parse_org, ".adoc": parse_asciidoc, ".md": _markdown, ".markdown": _markdown},
    **dict.fromkeys((".html", ".htm", ".xhtml"), parse_html),
    **dict.fromkeys((".docx", ".docm", ".dotx"), parse_docx),
    **dict.fromkeys((".odt", ".odp"), parse_open_document),
    **{".pdf": parse_pdf, ".rtf": parse_rtf, ".epub": parse_epub, ".ipynb": parse_notebook, ".xml": parse_xml},
    **dict.fromkeys((".pptx", ".pptm", ".ppsx"), parse_pptx),
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), parse_spreadsheet),
    ".eml": lambda raw: parse_email(raw, _attached),
    ".mbox": lambda raw: parse_mailbox(raw, _attached),
    **{".srt": parse_captions, ".vtt": parse_captions, ".csv": parse_delimited, ".tsv": parse_delimited},
    **{".json": parse_json, ".jsonl": parse_json_lines, ".ndjson": parse_json_lines, ".parquet": parse_parquet},
    **dict.fromkeys(SOURCE_CODE, parse_code),
}


def kind_of(path: Path) -> str | None:
    """Return the suffix that decides how a file is read, without `.gz`; None if the kind is not supported."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".gz"]:
        suffixes.pop()
    kind = suffixes[-1] if suffixes else ""
    return kind if kind in PARSERS or kind[1:] in _of_plugins() else None


def read_file(path: Path) -> ReadFile:
    """Read one file, in this process."""
    kind = kind_of(path)
    if kind is None:
        raise UnreadableFile(f"is of a kind that is not read: {path.suffix}")
    with open_regular(path) as (file, size):
        if size > MAX_FILE_BYTES:
            raise UnreadableFile(f"is larger than {MAX_FILE_BYTES >> 20} MiB; divide it")
        raw = file.read(MAX_FILE_BYTES + 1)
    if path.suffix.lower() == ".gz":
        raw = _unpack(raw)
    if not raw.strip():
        raise UnreadableFile("is empty")
    parsed = _parse(kind, raw)
    documents = [document for document in parsed.documents if document.text]
    if not documents:
        raise UnreadableFile("holds no text")
    compared = (parsed.source_text, documents, parsed.left_out)
    return ReadFile(documents, share_kept(*compared), parsed.notes, lost_numbers(*compared))


def _unpack(raw: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        content = unpacker.decompress(raw, MAX_FILE_BYTES + 1)
    except zlib.error as error:
        raise UnreadableFile("is not a gzip file, or is damaged") from error
    if len(content) > MAX_FILE_BYTES:
        raise UnreadableFile(f"unpacks to more than {MAX_FILE_BYTES >> 20} MiB; divide it")
    return content if unpacker.eof and not unpacker.unused_data else _unpack_members(raw)


def _unpack_members(raw: bytes) -> bytes:
    """Unpack a gzip file of several members, or one that is cut off."""
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(MAX_FILE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableFile("is not a gzip file, or is damaged") from error
    if len(content) > MAX_FILE_BYTES:
        raise UnreadableFile(f"unpacks to more than {MAX_FILE_BYTES >> 20} MiB; divide it")
    return content


class IsolatedParser:
    """Parses files in a separate process, with a limit on its memory and on the time for a file."""

    def __enter__(self) -> Self:
        self._pool = _pool()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call]  # the one method of pebble without types
        self._pool.join()

    def read(self, path: Path) -> ReadFile:
        """Read one file, see `read_file`; UnreadableFile is also raised if the parser crashes or takes too long."""
        try:
            task = self._pool.schedule(_read_or_exit, args=[path, _MAX_SECONDS], timeout=_MAX_WAIT)
            file: ReadFile = task.result()
        except ParserTimeout as error:
            raise UnreadableFile(f"takes longer than {_MAX_WAIT} s to read") from error
        except ProcessExpired as error:
            if error.exitcode == -signal.SIGXCPU:
                raise UnreadableFile(f"takes more than {_MAX_SECONDS} s of processor time to read") from error
            if error.exitcode == _OUT_OF_MEMORY:
                raise UnreadableFile("takes too much memory to read") from error
            raise UnreadableFile("makes its parser crash; it may be damaged") from error
        except (UnreadableFile, OSError):
            raise
        except Exception as error:  # an unforeseen failure of a parser: continue with the other files
            raise UnreadableFile(f"cannot be read ({type(error).__name__})") from error
        return file


def _pool() -> ProcessPool:
    """Start a fresh interpreter: a fork would count this process's libraries against the memory limit."""
    spawn: Any = multiprocessing.get_context("spawn")  # pebble's annotation is the union of Unix and Windows
    return ProcessPool(max_workers=1, initializer=_limit_memory, context=spawn)


def _read_or_exit(path: Path, seconds: int) -> ReadFile:
    """Read a file in the pool's process, and exit if memory runs out, as the process cannot be trusted afterwards."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    limit = math.ceil(time.process_time()) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))
    try:
        return read_file(path)
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)


def _limit_memory() -> None:
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # its own allocators reserve more than they use
    resource.setrlimit(resource.RLIMIT_DATA, (_MAX_MEMORY, _MAX_MEMORY))
