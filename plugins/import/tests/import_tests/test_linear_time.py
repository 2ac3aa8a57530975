"""Long runs of one sign take an importer linear time, in processor time of this process, as they must with any load."""

import time

import pytest

from taugate.data.parsed import UnreadableFile
from taugate_import.parse import PARSERS
from taugate_import.word_share import lost_numbers, share_kept

pytestmark = pytest.mark.slow

_SIGNS = 10_000
_TIMES = 8
_GROWTH = 22  # of the time for 8 times as many signs: half way, in factors, from linear (8) to quadratic time (64)


def seconds(kind: str, text: str) -> float:
    """Return the processor time of reading a file and comparing its words."""
    before = time.process_time()
    try:
        parsed = PARSERS[kind](text.encode())
        share_kept(parsed.source_text, parsed.documents, parsed.left_out)
        lost_numbers(parsed.source_text, parsed.documents, parsed.left_out)
    except UnreadableFile:
        pass
    return time.process_time() - before


@pytest.mark.parametrize(
    ("kind", "before", "sign"),
    [
        (".srt", "", "<v <v"),
        (".vtt", "WEBVTT\n\n", "<v "),
        (".md", "", "["),
        (".md", "", "<sup>\n"),
        (".csv", "", "\\\n"),
        (".eml", "From: ", '"'),
        (".eml", "From: ", ","),
        (".eml", "From: ", " a\n"),
        (".eml", "To: ", "\\"),
        (".eml", "Content-Type: ", '"'),
        (".html", "", "<meta "),
        (".html", "", "<img alt='"),
        (".html", "<p>", "x<sup>1</sup>"),
        (".txt", "", "a1"),
        (".txt", "", "1."),
    ],
)
def test_time_grows_with_number_of_signs(kind: str, before: str, sign: str) -> None:
    few, many = (before + sign * (count // len(sign)) for count in (_SIGNS, _TIMES * _SIGNS))
    seconds(kind, few)  # once, as the first call loads and compiles
    least = [min(seconds(kind, text) for _ in range(3)) for text in (few, many)]  # as other work slows one run down
    assert least[1] < _GROWTH * max(least[0], 0.01)
