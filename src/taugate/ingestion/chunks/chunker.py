"""Divides a document into chunks that fit the encoder's window, at headings, paragraphs and sentences."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from pathlib import Path
from string import printable
from typing import Literal, Self

from tokenizers import Tokenizer

from taugate.errors import InputError
from taugate.ingestion.chunks import CHUNK_TOKENS, OVERLAP_TOKENS
from taugate.ingestion.chunks.sentences import LONGEST, SENTENCE_END, spans
from taugate.ingestion.parsed import Block, ParsedDocument
from taugate.retrieval.encoder.encoder import CONFIG, TOKENIZER, EncoderConfig
from taugate.retrieval.encoder.unread import UNREADABLE, UnreadCounter

_LINE = re.compile(r"\n")
_TITLE_SHARE = 4  # a title takes at most a quarter of the window
_ORDINARY_WORD = 100  # characters; of a longer one WordPiece makes one unknown token
_SMALL_SECTION = 4  # sections below a quarter of the window are joined with the next
HEADING_SEPARATOR = " > "


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a document.

    Attributes:
        start: Its characters in the document's text.
        end: Its characters in the document's text.
        title: The document's title and the headings above the part.
        heading: The last of them, empty where there is none.
        page: On which it begins, None without pages.
    """

    start: int
    end: int
    title: str
    heading: str
    page: int | None


@dataclass(slots=True)
class _Section:
    """Blocks under one heading.

    Attributes:
        path: To it.
        titles: The headings that stand right before the blocks, as blocks.
    """

    path: tuple[str, ...]
    titles: list[Block]
    blocks: list[Block]

    def start(self, path: tuple[str, ...]) -> int:
        """Return where the text begins of a chunk whose title is `path`: with the first heading that it leaves out."""
        return next((each.start for each in self.titles if len(each.headings) > len(path)), self.blocks[0].start)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of text that is not divided further: a sentence, a line, or a whole table.

    Attributes:
        tokens: Its length.
    """

    start: int
    end: int
    tokens: int
    page: int | None


class Chunker:
    """Makes chunks of at most `size` tokens, the title and the special tokens included.

    Attributes:
        tokenizer: The encoder's own, without truncation and padding.
        window: The encoder's longest text, in tokens.
        size: Of a chunk in tokens, None for CHUNK_TOKENS or the window, whichever is smaller.
        overlap: Tokens that a chunk repeats from the one before it, where a section had to be divided.
        prompt: What the encoder puts in front of each document.

    Raises:
        InputError: Where the size is beyond the window, or the overlap is more than half of the size.
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
        self._room = self.size - tokenizer.num_special_tokens_to_add(is_pair=False) - self._count(prompt)
        if self._room < 16:
            raise InputError(f"--chunks {self.size}: leaves fewer than 16 tokens for text; give a larger size")

    @classmethod
    def of(cls, encoder: Path, size: int | Literal["auto"] = "auto", overlap: int = OVERLAP_TOKENS) -> Self:
        """Make chunks for an encoder.

        Args:
            encoder: Its folder, exported.
            size: Of a chunk in tokens, "auto" for CHUNK_TOKENS or the window, whichever is smaller.
            overlap: As above.

        Raises:
            InputError: As above, and where the encoder has no tokenizer of its own.
        """
        config = EncoderConfig.model_validate_json((encoder / CONFIG).read_bytes())
        try:
            tokenizer = Tokenizer.from_file(str(encoder / TOKENIZER))
        except Exception as error:  # tokenizers raises nothing narrower
            raise InputError(
                f"{encoder}: has no {TOKENIZER} that can be read, and chunks are counted in its tokens; name another "
                "encoder, or give --chunks off"
            ) from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return cls(tokenizer, config.max_length, None if size == "auto" else size, overlap, config.document_prompt)

    def fits(self, text: str) -> bool:
        """Tell whether a text, with its title in front, is short enough for one chunk."""
        return len(text) <= self._room * 16 and self._count(text) <= self._room

    def count_unreadable(self, texts: Sequence[str]) -> int:
        """Return how many texts the encoder cannot read, as most of their characters are in unknown tokens.

        Texts of ASCII with words of ordinary length are not tokenized again if the encoder knows all of ASCII.
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
        """Divide a document; one that fits is one chunk. Returns its chunks in reading order."""
        sections = list(_sections(document))
        chunks: list[Chunk] = []
        joined: _Section | None = None
        for section in sections:
            if joined is not None and self._joins(document, joined, section):
                joined = _join(joined, section)
                continue
            if joined is not None:
                chunks += self._divide(document, joined)
            joined = section
        return chunks + (self._divide(document, joined) if joined else [])

    def _joins(self, document: ParsedDocument, one: _Section, other: _Section) -> bool:
        """Tell whether two neighbouring sections become one chunk: the first is small, and both fit."""
        both = _join(one, other)
        if self._count(document.text[one.blocks[0].start : one.blocks[-1].end]) > self._room // _SMALL_SECTION:
            return False
        return self._fits(document, both)

    def _fits(self, document: ParsedDocument, section: _Section) -> bool:
        start, end = section.blocks[0].start, section.blocks[-1].end
        if end - start > self._room * 16:  # characters: far longer than so many tokens, and slow to count
            return False
        return self._count(document.text[start:end]) <= self._room - self._title_tokens(document, section)

    def _divide(self, document: ParsedDocument, section: _Section) -> list[Chunk]:
        """Fill chunks with the pieces of one section; each begins with the end of the one before, by the overlap."""
        title = self._title(document, section.path)
        heading = section.path[-1] if section.path else ""
        if self._fits(document, section):
            return [Chunk(section.blocks[0].start, section.blocks[-1].end, title, heading, section.blocks[0].page)]
        room = self._room - self._count(f"{title} " if title else "")
        pieces = list(self._pieces(document.text, section.blocks, room))
        total = sum(piece.tokens for piece in pieces)
        # Chunks of about equal length: filled to the brim, the last one would often hold half a sentence.
        target = total / max(1, -(-total // room))
        chunks: list[list[_Piece]] = [[]]
        length = 0
        for piece in pieces:
            if chunks[-1] and (length >= target or length + piece.tokens > room):
                chunks.append(self._repeated(chunks[-1], room - piece.tokens))
                length = sum(each.tokens for each in chunks[-1])
            chunks[-1].append(piece)
            length += piece.tokens
        return [Chunk(part[0].start, part[-1].end, title, heading, part[0].page) for part in chunks if part]

    def _repeated(self, pieces: Sequence[_Piece], room: int) -> list[_Piece]:
        """Return the last pieces that fit in the overlap and in the room that the next piece leaves."""
        limit = min(self.overlap, room)
        kept: list[_Piece] = []
        for piece in reversed(pieces):
            limit -= piece.tokens
            if limit < 0:
                break
            kept.insert(0, piece)
        return kept

    def _pieces(self, text: str, blocks: Sequence[Block], room: int) -> Iterator[_Piece]:
        """Yield what chunks are filled with: tables and listings whole where they fit, else sentences and lines."""
        for block in blocks:
            if block.kind in {"table", "code", "heading"} and block.end - block.start <= LONGEST:
                tokens = self._count(text[block.start : block.end])
                if tokens <= room:
                    yield _Piece(block.start, block.end, tokens, block.page)
                    continue
            boundary = _LINE if block.kind in {"table", "code"} else SENTENCE_END
            pieces = list(spans(text, block.start, block.end, boundary))
            # Each piece is counted with the space after it, so that a chunk is never longer than its pieces.
            for (start, end), tokens in zip(
                pieces, self._counts([text[start:end] for start, end in pieces]), strict=True
            ):
                if tokens <= room:
                    yield _Piece(start, end, tokens, block.page)
                else:
                    yield from self._cut(text, start, end, room, block.page)

    def _cut(self, text: str, start: int, end: int, room: int, page: int | None) -> Iterator[_Piece]:
        """Cut what is longer than a chunk and has no sentences, between two words where there are any."""
        while start < end:
            offsets = self._tokenizer.encode(text[start:end], add_special_tokens=False).offsets
            if len(offsets) <= room:
                yield _Piece(start, end, len(offsets), page)
                return
            cut = start + offsets[room - 1][1]
            space = text.rfind(" ", start + 1, cut)
            cut = space + 1 if space > start + (cut - start) // 2 else cut
            yield _Piece(start, cut, self._count(text[start:cut]), page)
            start = cut

    def _title(self, document: ParsedDocument, path: Sequence[str]) -> str:
        """Join title and headings; of those that are too long, the outermost are left out, then words of the last."""
        names = [document.title, *path] if document.title and (not path or path[0] != document.title) else [*path]
        names = [name for name in names if name]
        most = self._room // _TITLE_SHARE
        while len(names) > 1 and self._count(HEADING_SEPARATOR.join(names)) > most:
            names.pop(0)
        title = HEADING_SEPARATOR.join(names)[:LONGEST]
        offsets = self._tokenizer.encode(title, add_special_tokens=False).offsets
        return title if len(offsets) <= most else title[: offsets[most - 1][1]]

    def _title_tokens(self, document: ParsedDocument, section: _Section) -> int:
        title = self._title(document, section.path)
        return self._count(f"{title} ") if title else 0

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids) if text else 0

    def _counts(self, texts: list[str]) -> list[int]:
        return [len(encoding.ids) for encoding in self._tokenizer.encode_batch(texts, add_special_tokens=False)]


def _sections(document: ParsedDocument) -> Iterator[_Section]:
    """Group blocks by their headings. A heading with nothing below it is text of its own where no other text is."""
    if all(block.kind == "heading" for block in document.blocks):
        yield _Section((), [], list(document.blocks))
        return
    titles: list[Block] = []
    for is_heading, group in groupby(document.blocks, key=lambda block: block.kind == "heading"):
        if is_heading:
            titles = list(group)
            continue
        for path, same in groupby(group, key=lambda block: block.headings):
            yield _Section(path, titles, list(same))
            titles = []


def _join(one: _Section, other: _Section) -> _Section:
    """Join two sections under the headings that both have; headings that differ become part of the text."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one.path, other.path, strict=False))
    common = tuple(heading for heading, _ in pairs)
    first = replace(one.blocks[0], start=one.start(common))
    return _Section(common, one.titles, [first, *one.blocks[1:], *other.titles, *other.blocks])
