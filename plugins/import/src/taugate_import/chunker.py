"""The documents of a corpus, divided into chunks that fit the encoder's window: at headings, paragraphs, sentences.

Chooses where chunks begin: the division of a document's pieces that costs least. A chunk costs the square of its share
of the full length, so of two divisions into the same number of chunks the more even one is cheaper. A chunk that begins
within a section costs 1 more. That is more than a further chunk can save by evenness, T²/(n(n + 1)) < 1 for a section
of T ≤ n full lengths, so a section has as few chunks as it can.
"""

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import printable
from typing import Literal, Self

import orjson
from tokenizers import Tokenizer

from taugate.data.parsed import HEADING_SEPARATOR, LONGEST, ParsedDocument, Piece, PieceReader, sections
from taugate.errors import InputError
from taugate.release.encoder import CONFIG, TOKENIZER, EncoderConfig
from taugate.retrieval.documents.store import MetadataValue
from taugate.retrieval.encoder.encoder import UNREADABLE, UnreadCounter
from taugate.storage.files import Json
from taugate_import import CHUNK_TOKENS, OVERLAP_TOKENS

# A title may have a quarter of a chunk, some 25 words: with fewer words than this, it would decide the rank alone.
MIN_WORDS = 30
# A text of so many characters is not short even if it has few words, as in scripts without spaces between words:
# MIN_WORDS words of 8 characters.
_MIN_CHARACTERS = 240
_WITHIN_SECTION = 1.0
# Two chunks whose boundary is a quarter of the full length off the middle cost 2 · (1/4)² more than even ones, so a
# boundary moves by at most that to lie between two blocks.
_WITHIN_BLOCK = 0.125
# Joining shares a and b costs 2ab ≤ 1/2 more, so a short chunk is joined with any neighbour that has room for it, but
# no section that fits in a chunk is divided for it.
_SHORT = 0.5
# More than dividing a section in two: links that lead to other texts say nothing themselves, and match every question.
_LINKS_ALONE = 2.0

_TITLE_SHARE = 4  # a title takes at most a quarter of the window
_ORDINARY_WORD = 100  # characters; of a longer one WordPiece makes one unknown token


@dataclass(frozen=True, slots=True)
class Division:
    """Pieces of one chunk.

    Attributes:
        path: Headings that the chunk has as its title: those that all of its sections share, or those of the section in
            which it begins, if it begins within one. Headings that are not among them are a part of its text.
    """

    first: int
    stop: int
    path: tuple[str, ...]
    tokens: int


def divide(
    pieces: Sequence[Piece], max_tokens: int, overlap: int, title_tokens: Callable[[tuple[str, ...]], int]
) -> list[Division]:
    """Return the chunks of a document with the lowest total cost, in reading order.

    Args:
        pieces: All pieces of the document; the first one opens a section.
        max_tokens: Length of a chunk with its title. A piece that is longer is a chunk of its own.
    """
    paths = _paths(pieces)
    best: list[tuple[float, Division | None]] = [(0.0, None)]
    for stop in range(1, len(pieces) + 1):
        best.append(
            min(
                (
                    (best[division.first][0] + cost, division)
                    for division, cost in _last_chunks(pieces, paths, stop, max_tokens, overlap, title_tokens)
                ),
                key=lambda option: option[0],
            )
        )
    chunks: list[Division] = []
    division = best[-1][1]
    while division is not None:
        chunks.append(division)
        division = best[division.first][1]
    return chunks[::-1]


def _last_chunks(
    pieces: Sequence[Piece],
    paths: Sequence[tuple[str, ...]],
    stop: int,
    max_tokens: int,
    overlap: int,
    title_tokens: Callable[[tuple[str, ...]], int],
) -> list[tuple[Division, float]]:
    """Return the chunks that may end before piece `stop`, with their costs; the one of a single piece always may."""
    options: list[tuple[Division, float]] = []
    tokens = words = 0
    links_alone = True
    common = paths[stop - 1]
    for first in range(stop - 1, -1, -1):
        piece = pieces[first]
        tokens += piece.tokens
        words += piece.words
        links_alone &= piece.is_link
        common = _common(common, paths[first])
        path = common if piece.section else paths[first]
        length = tokens + title_tokens(path)
        if piece.section and path != paths[first]:
            length += piece.heading_tokens
        if length + (0 if piece.section else overlap) > max_tokens and options:
            if tokens > max_tokens:
                break
        else:
            cost = (tokens / max_tokens) ** 2
            if piece.section is None:
                cost += _WITHIN_SECTION + (0 if piece.opens else _WITHIN_BLOCK)
            if links_alone:
                cost += _LINKS_ALONE
            elif words < MIN_WORDS and pieces[stop - 1].end - piece.start < _MIN_CHARACTERS:
                cost += _SHORT
            options.append((Division(first, stop, path, length), cost))
        tokens += piece.heading_tokens  # the chunk that begins earlier has this heading in its text
    return options


def _paths(pieces: Sequence[Piece]) -> list[tuple[str, ...]]:
    """Return the headings above each piece."""
    paths: list[tuple[str, ...]] = []
    for piece in pieces:
        paths.append(piece.section.path if piece.section else paths[-1])
    return paths


def _common(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """Return the headings that two paths share, from the outermost on."""
    length = next((i for i, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
    return first[: min(len(first), len(second))] if length is None else first[:length]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a document.

    Attributes:
        page: Page on which the part begins; None if the file has no pages.
    """

    start: int
    end: int
    title: str
    heading: str
    page: int | None


class Chunker:
    """Makes chunks of at most `size` tokens, including the title and the special tokens.

    Only a listing or a row of a table may be longer: it is kept whole if it fits in the window.

    Attributes:
        size: Maximum length of a chunk in tokens; None for CHUNK_TOKENS or the window, whichever is smaller.
        overlap: Tokens that a chunk repeats from the previous one if a section had to be divided.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        window: int,
        size: int | None = None,
        overlap: int = OVERLAP_TOKENS,
        prompt: str = "",
    ) -> None:
        self.size = min(CHUNK_TOKENS, window) if size is None else size
        self.overlap = overlap
        if self.size > window:
            raise InputError(f"--chunks {size}: the encoder reads at most {window} tokens; give {window} or fewer")
        if not 0 <= overlap <= self.size // 2:
            raise InputError(f"--overlap {overlap}: give 0 to {self.size // 2} tokens, half of the chunk at most")
        self._tokenizer = tokenizer
        self._unread = UnreadCounter(tokenizer)
        self._reads_ascii = not self._is_unreadable(" ".join(printable.strip()))
        frame = tokenizer.num_special_tokens_to_add(is_pair=False) + self._count(prompt)
        self._max_tokens = self.size - frame
        self._pieces = PieceReader(tokenizer, self._max_tokens, window - frame)
        if self._max_tokens < 16:
            raise InputError(f"--chunks {self.size}: leaves fewer than 16 tokens for text; give a larger size")

    @classmethod
    def of(cls, encoder: Path, size: int | Literal["auto"] = "auto", overlap: int = OVERLAP_TOKENS) -> Self:
        """Return a chunker for an exported encoder.

        Args:
            size: Maximum length of a chunk in tokens; "auto" for CHUNK_TOKENS or the window, whichever is smaller.
            overlap: Tokens that a chunk repeats from the previous one if a section had to be divided.
        """
        config = EncoderConfig.model_validate_json((encoder / CONFIG).read_bytes())
        try:
            tokenizer = Tokenizer.from_file(str(encoder / TOKENIZER))
        except Exception as error:  # tokenizers raises nothing narrower
            raise InputError(
                f"{encoder}: cannot read {TOKENIZER}, which is needed to count the tokens of chunks; name another "
                "encoder, or give --chunks off"
            ) from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return cls(tokenizer, config.max_length, None if size == "auto" else size, overlap, config.document_prompt)

    def fits(self, text: str) -> bool:
        """Return whether a text, with its title in front, fits in one chunk."""
        return len(text) <= self._max_tokens * 16 and self._count(text) <= self._max_tokens

    def count_unreadable(self, texts: Sequence[str]) -> int:
        """Return the number of texts that the encoder cannot read, as most of their characters are in unknown tokens.

        ASCII texts with words of ordinary length are skipped if the encoder knows all of ASCII.
        """
        return sum(not self._is_plain(text) and self._is_unreadable(text) for text in texts)

    def _is_plain(self, text: str) -> bool:
        if not (self._reads_ascii and text.isascii()):
            return False
        return max(map(len, text.split()), default=0) <= _ORDINARY_WORD

    def _is_unreadable(self, text: str) -> bool:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return self._unread.share(text, encoding) > UNREADABLE

    def chunks(self, document: ParsedDocument) -> list[Chunk]:
        """Return the chunks of a document in reading order.

        Small sections are joined with their neighbours, and long ones are divided evenly; see `division`.
        """
        titles: dict[tuple[str, ...], str] = {}
        lengths: dict[tuple[str, ...], int] = {}

        def title_tokens(path: tuple[str, ...]) -> int:
            if path not in lengths:
                titles[path] = self._title(document, path)
                lengths[path] = self._count(f"{titles[path]} ") if titles[path] else 0
            return lengths[path]

        parts = list(sections(document))
        pieces = [piece for part in parts for piece in self._pieces.read(document.text, part, title_tokens(part.path))]
        chunks = []
        for division in divide(pieces, self._max_tokens, self.overlap, title_tokens) if pieces else []:
            first, last = pieces[division.first], pieces[division.stop - 1]
            start = first.section.start(division.path) if first.section else self._repeat(pieces, division)
            heading = division.path[-1] if division.path else ""
            chunks.append(Chunk(start, last.end, titles[division.path], heading, first.page))
        return chunks

    def _repeat(self, pieces: Sequence[Piece], division: Division) -> int:
        """Return the start of a chunk that begins within a section: it repeats what fits in the overlap before it."""
        first, available = division.first, min(self.overlap, self._max_tokens - division.tokens)
        while pieces[first].section is None and pieces[first - 1].tokens <= available:
            first -= 1
            available -= pieces[first].tokens
        return pieces[first].start

    def _title(self, document: ParsedDocument, path: Sequence[str]) -> str:
        """Join title and headings; if they are too long, drop the outermost headings, then words of the innermost."""
        names = [document.title, *path] if document.title and (not path or path[0] != document.title) else [*path]
        names = [name for name in names if name]
        max_tokens = self._max_tokens // _TITLE_SHARE
        while len(names) > 1 and self._count(HEADING_SEPARATOR.join(names)) > max_tokens:
            names.pop(0)
        title = HEADING_SEPARATOR.join(names)[:LONGEST]
        offsets = self._tokenizer.encode(title, add_special_tokens=False).offsets
        return title if len(offsets) <= max_tokens else title[: offsets[max_tokens - 1][1]]

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids) if text else 0


@dataclass(frozen=True, slots=True)
class ImportedDocument:
    """A document of any source.

    Attributes:
        id: Its id in the corpus and in judgements; the ids of its chunks begin with it.
        as_written: Whether title and text are kept exactly if they fit in a chunk, as for documents of data sets.
        parent: Parent of a passage that has been a chunk before and is not divided again; None for whole documents.
        span: Span of such a passage in its parent; None for whole documents.
        changed_at: Time of the last change of its file, in seconds since 1970; infinite if it has none.
    """

    id: str
    content: ParsedDocument
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    as_written: bool = False
    parent: str | None = None
    span: tuple[int, int] | None = None
    changed_at: float = math.inf

    @property
    def document_id(self) -> str:
        """The id of the document that is counted: the parent's, else its own."""
        return self.parent or self.id

    def lines(self, chunker: Chunker | None, mark: str = "#") -> list[bytes]:
        """Return the lines of the corpus: one per chunk, with parent and span if there are several."""
        chunks = self._chunks(chunker)
        lines = []
        for number, chunk in enumerate(chunks):
            chunk_fields: dict[str, Json] = {"heading": chunk.heading, "page": chunk.page}
            line: dict[str, Json] = {
                "_id": f"{self.id}{mark}{number}" if len(chunks) > 1 else self.id,
                "title": chunk.title,
                "text": self.content.text[chunk.start : chunk.end],
                "metadata": {
                    **self.metadata,
                    **{name: value for name, value in chunk_fields.items() if value not in {None, ""}},
                },
            }
            if len(chunks) > 1:
                line |= {"parent": self.id, "span": [chunk.start, chunk.end]}
            elif self.parent is not None:
                line |= {"parent": self.parent, "span": self.span}
            lines.append(orjson.dumps(line) + b"\n")
        return lines

    def _chunks(self, chunker: Chunker | None) -> list[Chunk]:
        title, text = self.content.title, self.content.text
        if chunker is None or self.parent is not None or (self.as_written and chunker.fits(f"{title} {text}")):
            return [Chunk(0, len(text), title, "", None)]
        return chunker.chunks(self.content)


class PassageIds:
    """The unique ids of the lines of a corpus, although a document may have the name of another document's chunk.

    Attributes:
        reserved: Ids that no chunk may have, as judgements identify a document by them.
    """

    def __init__(self, reserved: Container[str] = ()) -> None:
        self._reserved = reserved
        self._original: set[str] = set()  # ids of documents, and of chunks of data sets
        self._chunks: set[str] = set()  # ids generated for chunks
        self._whole: set[str] = set()  # ids of documents that were not divided before
        self._divided: set[str] = set()  # ids of documents that were

    def lines(self, document: ImportedDocument, chunker: Chunker | None) -> tuple[ImportedDocument, list[bytes]]:
        """Return a document with its id in the corpus, and its lines.

        `manual#0` beside chunks of `manual` becomes `manual%230`. If it comes before `manual`, the chunks of `manual`
        are `manual##0` and so on.
        """
        conflicting = self._divided if document.parent is None else self._whole
        if document.id in self._original or document.document_id in conflicting:
            raise InputError(f"two documents have the id {document.id!r}; make the ids unique across all sources")
        while document.id in self._chunks:
            before, _, after = document.id.rpartition("#")
            document = replace(document, id=f"{before}%23{after}")
        mark = "#"
        lines = document.lines(chunker, mark)
        while any(self._is_taken(name) for name in _chunk_ids(document, mark, lines)):
            mark += "#"
            lines = document.lines(chunker, mark)
        self._original.add(document.id)
        self._chunks.update(_chunk_ids(document, mark, lines))
        if document.parent is None:
            self._whole.add(document.id)
        else:
            self._divided.add(document.parent)
        return document, lines

    def _is_taken(self, chunk: str) -> bool:
        return chunk in self._original or chunk in self._chunks or chunk in self._reserved


def _chunk_ids(document: ImportedDocument, mark: str, lines: Sequence[bytes]) -> list[str]:
    return [f"{document.id}{mark}{number}" for number in range(len(lines))] if len(lines) > 1 else []
