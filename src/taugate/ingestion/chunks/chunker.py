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
from taugate.retrieval.encoder.encoder import CONFIG, TOKENIZER, UNREADABLE, EncoderConfig
from taugate.retrieval.encoder.unread import UnreadCounter

_LINE = re.compile(r"\n")
_TITLE_SHARE = 4  # a title takes at most a quarter of the window
_ORDINARY_WORD = 100  # characters; of a longer one WordPiece makes one unknown token
_SMALL_SECTION = 4  # sections below a quarter of the window are joined with the next
HEADING_SEPARATOR = " > "


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a document.

    Attributes:
        start: Offset of its first character in the document's text.
        end: Offset after its last character.
        title: The document's title and the headings above the part.
        heading: The innermost of these headings, or "".
        page: Page on which the part begins; None if the file has no pages.
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
        path: Headings from the outermost to this one.
        titles: The headings right before the blocks, as blocks.
    """

    path: tuple[str, ...]
    titles: list[Block]
    blocks: list[Block]

    def start(self, path: tuple[str, ...]) -> int:
        """Return the start of a chunk titled `path`: that of the first heading that the title leaves out."""
        return next((title.start for title in self.titles if len(title.headings) > len(path)), self.blocks[0].start)


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
    """Makes chunks of at most `size` tokens, including the title and the special tokens.

    Attributes:
        tokenizer: The encoder's tokenizer, without truncation and padding.
        window: Longest text that the encoder reads, in tokens.
        size: Maximum length of a chunk in tokens; None for CHUNK_TOKENS or the window, whichever is smaller.
        overlap: Tokens that a chunk repeats from the previous one if a section had to be divided.
        prompt: Text that the encoder puts in front of each document.

    Raises:
        InputError: If the size exceeds the window, or the overlap exceeds half of the size.
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
        self._max_tokens = self.size - tokenizer.num_special_tokens_to_add(is_pair=False) - self._count(prompt)
        if self._max_tokens < 16:
            raise InputError(f"--chunks {self.size}: leaves fewer than 16 tokens for text; give a larger size")

    @classmethod
    def of(cls, encoder: Path, size: int | Literal["auto"] = "auto", overlap: int = OVERLAP_TOKENS) -> Self:
        """Return a chunker for an exported encoder.

        Args:
            encoder: Folder of the encoder.
            size: Maximum length of a chunk in tokens; "auto" for CHUNK_TOKENS or the window, whichever is smaller.
            overlap: Tokens that a chunk repeats from the previous one if a section had to be divided.

        Raises:
            InputError: If the encoder has no tokenizer, the size exceeds the window, or the overlap exceeds half of the
                size.
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
        """Return the chunks of a document in reading order; a document that fits is one chunk."""
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

    def _joins(self, document: ParsedDocument, first: _Section, second: _Section) -> bool:
        """Return whether two neighbouring sections become one chunk: the first is small, and both fit."""
        if (
            self._count(document.text[first.blocks[0].start : first.blocks[-1].end])
            > self._max_tokens // _SMALL_SECTION
        ):
            return False
        return self._fits(document, _join(first, second))

    def _fits(self, document: ParsedDocument, section: _Section) -> bool:
        start, end = section.blocks[0].start, section.blocks[-1].end
        if end - start > self._max_tokens * 16:  # characters: far longer than so many tokens, and slow to count
            return False
        return self._count(document.text[start:end]) <= self._max_tokens - self._title_tokens(document, section)

    def _divide(self, document: ParsedDocument, section: _Section) -> list[Chunk]:
        """Fill chunks with the pieces of one section; each chunk repeats the end of the previous one."""
        title = self._title(document, section.path)
        heading = section.path[-1] if section.path else ""
        if self._fits(document, section):
            return [Chunk(section.blocks[0].start, section.blocks[-1].end, title, heading, section.blocks[0].page)]
        limit = self._max_tokens - self._count(f"{title} " if title else "")
        pieces = list(self._pieces(document.text, section.blocks, limit))
        total = sum(piece.tokens for piece in pieces)
        # Chunks of about equal length: filled to the brim, the last one would often hold half a sentence.
        target = total / max(1, -(-total // limit))
        chunks: list[list[_Piece]] = [[]]
        length = 0
        for piece in pieces:
            if chunks[-1] and (length >= target or length + piece.tokens > limit):
                chunks.append(self._repeated(chunks[-1], limit - piece.tokens))
                length = sum(repeated.tokens for repeated in chunks[-1])
            chunks[-1].append(piece)
            length += piece.tokens
        return [Chunk(part[0].start, part[-1].end, title, heading, part[0].page) for part in chunks if part]

    def _repeated(self, pieces: Sequence[_Piece], available: int) -> list[_Piece]:
        """Return the last pieces that fit in the overlap and in the tokens that the next piece leaves available."""
        limit = min(self.overlap, available)
        kept: list[_Piece] = []
        for piece in reversed(pieces):
            limit -= piece.tokens
            if limit < 0:
                break
            kept.insert(0, piece)
        return kept

    def _pieces(self, text: str, blocks: Sequence[Block], max_tokens: int) -> Iterator[_Piece]:
        """Yield the pieces that fill chunks: tables and listings whole if they fit, else sentences and lines."""
        for block in blocks:
            if block.kind in {"table", "code", "heading"} and block.end - block.start <= LONGEST:
                tokens = self._count(text[block.start : block.end])
                if tokens <= max_tokens:
                    yield _Piece(block.start, block.end, tokens, block.page)
                    continue
            boundary = _LINE if block.kind in {"table", "code"} else SENTENCE_END
            pieces = list(spans(text, block.start, block.end, boundary))
            # Each piece is counted with the space after it, so that a chunk is never longer than its pieces.
            for (start, end), tokens in zip(
                pieces, self._counts([text[start:end] for start, end in pieces]), strict=True
            ):
                if tokens <= max_tokens:
                    yield _Piece(start, end, tokens, block.page)
                else:
                    yield from self._cut(text, start, end, max_tokens, block.page)

    def _cut(self, text: str, start: int, end: int, max_tokens: int, page: int | None) -> Iterator[_Piece]:
        """Divide text that is longer than a chunk and has no sentences, between two words if there are any."""
        while start < end:
            offsets = self._tokenizer.encode(text[start:end], add_special_tokens=False).offsets
            if len(offsets) <= max_tokens:
                yield _Piece(start, end, len(offsets), page)
                return
            cut = start + offsets[max_tokens - 1][1]
            space = text.rfind(" ", start + 1, cut)
            cut = space + 1 if space > start + (cut - start) // 2 else cut
            yield _Piece(start, cut, self._count(text[start:cut]), page)
            start = cut

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

    def _title_tokens(self, document: ParsedDocument, section: _Section) -> int:
        title = self._title(document, section.path)
        return self._count(f"{title} ") if title else 0

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids) if text else 0

    def _counts(self, texts: list[str]) -> list[int]:
        return [len(encoding.ids) for encoding in self._tokenizer.encode_batch(texts, add_special_tokens=False)]


def _sections(document: ParsedDocument) -> Iterator[_Section]:
    """Group blocks by their headings. Headings become text only if the document has no other text."""
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


def _join(first: _Section, second: _Section) -> _Section:
    """Join two sections under the headings that both have; headings that differ become part of the text."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first.path, second.path, strict=False))
    common = tuple(heading for heading, _ in pairs)
    opening = replace(first.blocks[0], start=first.start(common))
    return _Section(common, first.titles, [opening, *first.blocks[1:], *second.titles, *second.blocks])
