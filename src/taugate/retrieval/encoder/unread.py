"""Measures how much of a text an encoder cannot read: what its tokenizer drops or replaces by the unknown token.

Such texts look alike to the encoder, so their similarities are meaningless. A tokenizer with a byte fallback has tokens
for every text.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from tokenizers import Encoding, Tokenizer
from tokenizers.models import Unigram

_CONTROL = {"Cc", "Cf", "Cs"}
_UNKNOWN_OF_UNIGRAM = re.compile(r'"unk_id"\s*:\s*(\d+)')  # its class in Python does not tell


class UnreadCounter:
    """Counts the characters of texts that a tokenizer does not read."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._unknown = _unknown_id(tokenizer)

    def share(self, text: str, encoding: Encoding, *, start: int = 0, frame: int = 0) -> float:
        """Return the share of the characters of a text, 0…1, that the encoder does not read.

        Spaces, marks, invisible characters and the truncated part do not count. If every token is known, this only
        scans the token ids.

        Args:
            start: Start of the text after a prompt, in characters.
            frame: Number of tokens that belong to the prompt or are special.
        """
        ids = encoding.ids
        if len(ids) > frame and self._unknown not in ids:
            return 0.0
        end = encoding.offsets[-1 - trailing(encoding)][1] if encoding.overflowing else len(text)
        total = sum(map(_counts, text[start:end]))
        read = sum(sum(map(_counts, part)) for part in self._read_parts(text, encoding, start))
        return 1 - min(read, total) / total if total else 1.0

    def _read_parts(self, text: str, encoding: Encoding, start: int) -> Iterator[str]:
        """Yield the parts of a text that known tokens represent; several tokens may represent one character."""
        done = start
        for token, (first, last) in zip(encoding.ids, encoding.offsets, strict=True):
            if token != self._unknown and last > done:
                yield text[max(first, done) : last]
            done = max(done, last)


def trailing(encoding: Encoding) -> int:
    """Return the number of special tokens after the text's own tokens."""
    mask = encoding.special_tokens_mask
    return next((place for place, special in enumerate(reversed(mask)) if not special), 0)


@lru_cache(1 << 14)  # a megabyte; texts of a language have some hundred characters, or some thousand
def _counts(character: str) -> bool:
    """Return whether a character counts: no separator, mark or control character, which tokenizers may drop."""
    category = unicodedata.category(character)
    return category[0] not in "ZM" and category not in _CONTROL


def _unknown_id(tokenizer: Tokenizer) -> int | None:
    """Return the id of the unknown token, None if the tokenizer has none."""
    model = tokenizer.model
    if isinstance(model, Unigram):
        match = _UNKNOWN_OF_UNIGRAM.search(tokenizer.to_str())
        return int(match[1]) if match else None
    name = getattr(model, "unk_token", None)
    return None if name is None else tokenizer.token_to_id(name)
