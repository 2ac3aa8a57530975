"""Queries by independent cropping: a span of a document's words, with random words deleted.

The rule-based method of "Unsupervised Domain Adaption for Neural Information Retrieval" (section 3, Table 1), which is
Contriever's (Izacard et al. 2022) with the defaults of its code: a span of 10 % to 50 % of the words, at any position,
then each word deleted with a probability of 10 %.
"""

import hashlib
from itertools import pairwise

import numpy as np
import regex

from taugate.retrieval.index.words import UNSPACED

SHORTEST, LONGEST = 0.1, 0.5  # of a span, as shares of the document's words
DELETED = 0.1  # probability that a word of the span is deleted
# In scripts without spaces, letters with the marks on them stand for words, as in the vocabularies of most encoders.
_WORD = regex.compile(rf"(?V1){UNSPACED}\p{{M}}*|(?:(?!{UNSPACED})\S)+")

_SPACE = regex.compile(r"\s")


def crop(text: str, identifier: str, seed: int, span: tuple[int, int] | None = None) -> str:
    """Crop a query from a document.

    Each document has random numbers of its own, so that no other document changes its query.

    Args:
        text: Text of the document.
        identifier: Id of the document.
        seed: Seed of the run.
        span: Minimum and maximum number of words, None for the shares of the method; never more than the maximum share.

    Returns:
        The query; empty if the text is so short that nothing is left.
    """
    words = list(_WORD.finditer(text))
    rng = np.random.default_rng(_digest(seed, identifier))
    if span is None:
        length = int(len(words) * rng.uniform(SHORTEST, LONGEST))
    else:
        length = min(int(rng.integers(*span, endpoint=True)), int(len(words) * LONGEST))
    start = int(rng.integers(0, len(words) - length + 1))
    cropped = words[start : start + length]
    kept = [word for word, draw in zip(cropped, rng.random(length), strict=True) if draw >= DELETED]
    # The query has a space only if the text has one, so that Chinese letters are not separated.
    spaces = [_SPACE.search(text, word.end(), following.start()) is not None for word, following in pairwise(kept)]
    return "".join(
        f" {word.group()}" if spaced else word.group() for word, spaced in zip(kept, [False, *spaces], strict=False)
    )


def sampling_key(identifier: str, seed: int) -> int:
    """Return a random number that belongs to a document: the lowest ones form a sample that does not depend on order.

    Args:
        identifier: Id of the document.
        seed: Seed of the run.
    """
    return _digest(seed, identifier, "sample")


def _digest(seed: int, *names: str) -> int:
    return int.from_bytes(hashlib.sha256("\0".join([str(seed), *names]).encode()).digest()[:16], "big")
