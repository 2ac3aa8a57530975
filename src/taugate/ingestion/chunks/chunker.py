"""Divides a document into chunks that fit the encoder's window, at headings, paragraphs and sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import printable
from typing import Literal, Self

from tokenizers import Tokenizer

from taugate.errors import InputError
from taugate.ingestion.chunks import CHUNK_TOKENS, OVERLAP_TOKENS
from taugate.ingestion.chunks.division import Division, divide
from taugate.ingestion.chunks.pieces import Piece, PieceReader, sections
from taugate.ingestion.chunks.sentences import LONGEST
from taugate.ingestion.parsed import ParsedDocument
from taugate.retrieval.encoder.encoder import CONFIG, UNREADABLE, EncoderConfig
from taugate.retrieval.encoder.tokenizer import TOKENIZER
from taugate.retrieval.encoder.unread import UnreadCounter

_TITLE_SHARE = 4  # a title takes at most a quarter of the window
_ORDINARY_WORD = 100  # characters; of a longer one WordPiece makes one unknown token
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


class Chunker:
    """Makes chunks of at most `size` tokens, including the title and the special tokens.

    Only a listing or a row of a table may be longer: it is kept whole if it fits in the window.

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
        frame = tokenizer.num_special_tokens_to_add(is_pair=False) + self._count(prompt)
        self._max_tokens = self.size - frame
        self._pieces = PieceReader(tokenizer, self._max_tokens, window - frame)
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
