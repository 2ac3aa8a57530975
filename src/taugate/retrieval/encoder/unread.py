"""How much of a text an encoder cannot read: what its tokenizer replaces by the unknown token, or leaves out.

All such texts look alike to the encoder, so that their similarities mean nothing. A tokenizer that falls back to bytes
has a token for every text, and no unknown one.
"""

import re
import unicodedata
from collections.abc import Iterator

from tokenizers import Encoding, Tokenizer
from tokenizers.models import Unigram

# Share of its characters above which a text counts as unreadable: from about there, an answer is lost more often than
# found. Of the queries of SciFact and SQuAD that all-MiniLM-L6-v2 answers, it still answers 67 and 60 % with a share of
# .46, 55 and 52 % with .56, 39 and 40 % with .66, 17 and 21 % with .81 (benchmarks/encoder/unread_words.py).
UNREADABLE = 0.5
_CONTROL = {"Cc", "Cf", "Cs"}
_UNKNOWN_OF_UNIGRAM = re.compile(r'"unk_id"\s*:\s*(\d+)')  # its class in Python does not tell


class UnreadCounter:
    """Counts the characters of texts that a tokenizer does not read.

    Attributes:
        tokenizer: Of the encoder.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._unknown = _unknown_id(tokenizer)

    def share(self, text: str, encoding: Encoding, *, start: int = 0, frame: int = 0) -> float:
        """Return the share of the characters of a text, 0…1, that the encoder does not read.

        Spaces, marks and characters that show nothing do not count, nor what is cut off. Costs a look at the token ids
        if every token is known.

        Args:
            text: That was tokenized.
            encoding: Its tokens.
            start: Where the text begins behind a prompt, in characters.
            frame: Tokens that are not of the text: of the prompt, and special ones.
        """
        ids = encoding.ids
        if len(ids) > frame and self._unknown not in ids:
            return 0.0
        end = encoding.offsets[-1 - _trailing(encoding)][1] if encoding.overflowing else len(text)
        total = sum(1 for _ in _characters(text[start:end]))
        read = sum(1 for part in self._read_parts(text, encoding, start) for _ in _characters(part))
        return 1 - min(read, total) / total if total else 1.0

    def _read_parts(self, text: str, encoding: Encoding, start: int) -> Iterator[str]:
        """Yield the parts of a text that known tokens stand for; several tokens may stand for one character."""
        done = start
        for token, (first, last) in zip(encoding.ids, encoding.offsets, strict=True):
            if token != self._unknown and last > done:
                yield text[max(first, done) : last]
            done = max(done, last)


def _trailing(encoding: Encoding) -> int:
    """Return how many special tokens stand behind the text's own."""
    mask = encoding.special_tokens_mask
    return next((place for place, special in enumerate(reversed(mask)) if not special), 0)


def _characters(text: str) -> Iterator[str]:
    """Yield the characters that count: no separators, marks and control characters, which tokenizers may leave out."""
    return (
        each
        for each in text
        if unicodedata.category(each)[0] not in "ZM" and unicodedata.category(each) not in _CONTROL
    )


def _unknown_id(tokenizer: Tokenizer) -> int | None:
    """Return the id of the unknown token, None if the tokenizer has none."""
    model = tokenizer.model
    if isinstance(model, Unigram):
        found = _UNKNOWN_OF_UNIGRAM.search(tokenizer.to_str())
        return int(found[1]) if found else None
    name = getattr(model, "unk_token", None)
    return None if name is None else tokenizer.token_to_id(name)
