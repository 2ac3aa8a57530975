"""From a text to its sentences and their terms, in any language, as numbers."""

import re
import unicodedata
import zlib

import numpy as np
from numpy.typing import NDArray

Terms = NDArray[np.uint32]

_WORD = re.compile(r"\w+")
# A space behind a mark that ends a sentence, as in most scripts, or a mark that needs none; or the end of a line.
# "Mr. X" ends one as well, which costs little: all that is asked of a sentence is which words stand together.
_END = re.compile(r"(?<=[.!?…؟।])\s+|[。｡！？]+|\n+")


def terms(text: str) -> Terms:
    """The words of a text in their order, each as the CRC-32 of its letters, (t,) uint32.

    A word is a run of letters, digits and marks after NFKC and case folding (Unicode Standard Annex 15; The Unicode
    Standard, §3.13), with no stemming and no list of stop words: these know one language. A script that puts no spaces
    between words has few and long ones here, which hardly ever match. Of a million different words some 116 pairs share
    a number, n²/2³³; each then counts as the other.
    """
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return np.fromiter((zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in words), np.uint32, len(words))


def sentences(text: str) -> list[Terms]:
    """The terms of each sentence that has any."""
    found = (terms(sentence) for sentence in _END.split(text))
    return [each for each in found if len(each)]
