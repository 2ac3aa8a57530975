"""Captions and subtitles (.srt, .vtt): what is said, without times, names of cues, styles and notes."""

import html
import re
from collections.abc import Iterator

from taugate.ingestion.importers.plain_text import decode_text
from taugate.ingestion.parsed import ParsedFile, TextBuilder

_TIME = r"(?:\d{1,4}:)?\d{1,4}:\d{1,2}[.,]\d{1,6}"
_TIMING = re.compile(rf"\s*({_TIME})\s*-->\s*({_TIME})")
_NO_CUE = re.compile(r"(?:NOTE|STYLE|REGION)(?!\S)")
_SPEAKER = re.compile(r"^\s*<v(?:\.[^\s<>]*)?[ \t]+([^<>]+)>")
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|<[\d:.]+>|\{\\[^{}]*\}")  # tags, times of words, and codes of positions


def parse_captions(raw: bytes) -> ParsedFile:
    """Read captions, one paragraph each; lines that are still shown by the next one are read once.

    Raises:
        UnreadableFile: If the bytes are not text.
    """
    decoded = decode_text(raw)
    builder = TextBuilder()
    before: list[str] = []
    end = ""
    for begin, stop, lines in _cues(decoded.text):
        spoken = [text for line in lines if (text := _spoken(line))]
        if not spoken:
            continue
        sizes = range(min(len(before), len(spoken)), 0, -1) if begin and begin <= end else ()
        repeated = next((size for size in sizes if before[-size:] == spoken[:size]), 0)
        builder.add("\n".join(spoken[repeated:]), "prose")
        before, end = spoken, stop
    document = builder.document("")
    return ParsedFile([document], document.text, decoded.notes)


def _cues(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the begin and the end of each cue, and its lines; text outside of cues is a cue without times."""
    is_vtt = text.startswith("WEBVTT")
    for number, block in enumerate(re.split(r"\n{2,}", text.strip("\n"))):
        begin = end = ""
        lines: list[str] = []
        is_header = is_vtt and (number == 0 or bool(_NO_CUE.match(block)))
        for line in block.split("\n"):
            match = _TIMING.match(line)
            if match is None:
                lines.append(line)
                continue
            if lines and (len(lines) == 1 or lines[-1].strip().isdigit()):
                lines.pop()  # the name of the cue
            if not is_header:
                yield begin, end, lines
            begin, end, lines, is_header = match[1], match[2], [], False
        if not is_header:
            yield begin, end, lines


def _spoken(line: str) -> str:
    """Return a line without markup, with the name of the speaker before it."""
    return html.unescape(_MARKUP.sub("", _SPEAKER.sub(r"\1: ", line))).strip()
