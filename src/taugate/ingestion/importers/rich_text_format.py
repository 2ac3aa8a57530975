"""Rich Text Format (.rtf), with striprtf."""

import re
from collections.abc import Iterator

from striprtf.striprtf import FONTTABLE, charset_map, destinations, font_table_group, rtf_to_text, specialchars

from taugate.ingestion.importers.plain_text import parse_plain_text
from taugate.ingestion.parsed import ParsedFile, UnreadableFile

_CODEPAGE = re.compile(rb"\\ansicpg(\d+)")
_TOKEN = re.compile(
    r"\\([a-z]+)(-?\d+)? ?|\\'([0-9a-f]{2})|\\(\*)|\\(.)|([{}])|([^\\{}\r\n]+)", re.IGNORECASE | re.DOTALL
)
# Groups with hidden text.
_HIDDEN = frozenset(
    {"fonttbl", "colortbl", "stylesheet", "info", "pict", "themedata", "listtable", "listoverridetable", "rsidtbl"}
    | {"generator", "datastore", "xmlnstbl", "latentstyles", "object", "fldinst", "*"}
)
# Groups that are read after their paragraph, as in Word files; headers, footers and comments after the last one.
_NOTE = re.compile(r"\{(?:\\\*)?\s*\\(?:(footnote|shptxt)|annotation|header[lrf]?|footer[lrf]?)(?![a-z])")


def parse_rtf(raw: bytes) -> ParsedFile:
    """Read Rich Text.

    Raises:
        UnreadableFile: If it is damaged or not Rich Text.
    """
    if not raw.lstrip().startswith(b"{\\rtf"):
        raise UnreadableFile("is not Rich Text")
    source = _with_notes(raw.decode("latin-1"))
    try:
        text = str(rtf_to_text(source, errors="replace"))  # type: ignore[no-untyped-call]  # striprtf has no types
    except (ValueError, IndexError, KeyError, LookupError) as error:  # of striprtf, with damaged files
        raise UnreadableFile("is not Rich Text, or is damaged") from error
    text = re.sub(r"\n+", "\n\n", _whole(text).replace("\r\n", "\n").replace("\x00", ""))
    page = _CODEPAGE.search(raw)
    shown = _whole("".join(_shown(source, f"cp{int(page[1])}" if page else "cp1252")))
    signs = re.findall(rb"(?<!\\)(?:\\\\)*([{}])", raw)
    notes = () if signs.count(b"{") == signs.count(b"}") else ("is damaged or cut off; text may be missing",)
    return ParsedFile([parse_plain_text(text)], shown, notes)


def _whole(text: str) -> str:
    """Join the halves of surrogate pairs, as Rich Text writes rare characters."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _with_notes(source: str) -> str:
    """Return Rich Text in which notes and text boxes are groups of their own after their paragraph."""
    parts: list[str] = []
    notes: list[str] = []  # of the paragraph
    last: list[str] = []
    outer: list[tuple[int, bool, int, list[str], list[str]]] = []
    hidden = depth = position = 0
    for token in _TOKEN.finditer(source):
        word, brace = token[1], token[6]
        if token.start() < position:
            continue
        if brace == "{":
            depth += 1
            if note := _NOTE.match(source, token.start()):
                outer.append((depth, bool(note[1]), hidden, parts, notes))
                parts.append("{}")  # ends the control word before
                parts, notes, hidden, position = [], [], 0, note.end()
                continue
        elif brace:
            depth -= 1
            if outer and depth < outer[-1][0]:
                text = "".join(["{", *parts, *notes, "\\par}"])
                _, is_of_paragraph, hidden, parts, notes = outer.pop()
                (notes if is_of_paragraph else last).append(text)
                continue
            hidden = hidden if depth >= hidden else 0
            if depth == 0:
                parts += ["\\par", *notes, *last]
                notes, last = [], []
        elif token[4] or word in destinations:
            hidden = hidden or depth
        parts.append(token[0])
        if word == "par" and not hidden:
            parts += notes
            notes = []
    return "".join([*(part for group in outer for part in group[3]), *parts, *notes, *last])


def _shown(source: str, encoding: str) -> Iterator[str]:
    """Yield the text outside of control words and hidden groups, with codes replaced by their letters."""
    table = str(font_table_group(source))  # type: ignore[no-untyped-call]  # striprtf has no types
    fonts = {number: charset_map.get(int(code), encoding) for number, code, _ in FONTTABLE.findall(table)}
    font, skips, groups = encoding, 1, list[tuple[str, int]]()
    codes = b""
    hidden = skipped = 0
    for word, number, code, star, sign, brace, text in _TOKEN.findall(source):
        if codes and not code:
            yield _decoded(codes, font)
            codes = b""
        if brace == "{":
            groups.append((font, skips))
        elif brace:
            font, skips = groups.pop() if groups else (encoding, 1)
            hidden = hidden if len(groups) >= hidden else 0
        elif hidden or star or word in _HIDDEN:
            hidden = hidden or len(groups)
        elif word == "f":
            font = fonts.get(number, encoding)
        elif word == "uc":
            skips = int(number or 1)
        elif word == "u" and number:
            skipped = skips
            yield chr(int(number) % 65536)
        elif code:
            codes += bytes([int(code, 16)])[skipped:]
            skipped = max(skipped - 1, 0)
        else:
            yield text[skipped:] or specialchars.get(word or sign, "")
            skipped = 0 if text else skipped


def _decoded(codes: bytes, encoding: str) -> str:
    try:
        return codes.decode(encoding, "replace")
    except LookupError:
        return codes.decode("cp1252", "replace")
