"""Loads the tokenizer of an exported model."""

from pathlib import Path
from typing import TYPE_CHECKING

from taugate.errors import EncoderError
from taugate.release.encoder import TOKENIZER

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def load_tokenizer(folder: Path, max_length: int, remedy: str) -> "Tokenizer":
    """Load a tokenizer that does not pad, and truncates the longer text of a pair first.

    Args:
        max_length: Longest text, or pair of texts, in tokens.
        remedy: What to do if the file is damaged, the end of a sentence.
    """
    from tokenizers import Tokenizer  # slow to load, and only encoding needs it

    try:
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length)  # of a pair, tokens of the longer text: `longest_first` is the default
    except Exception as error:  # tokenizers raises bare Exception for an unreadable file
        raise EncoderError(f"{folder / TOKENIZER}: not a tokenizer.json; {remedy}") from error
    return tokenizer
