"""Rich Text Format (.rtf), with striprtf."""

import re
from collections.abc import Iterator

from striprtf.striprtf import rtf_to_text

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
_SPACES = {"par", "line", "tab", "cell", "row", "sect", "page"}


def parse_rtf(raw: bytes) -> ParsedFile:
    """Read Rich Text.

    Raises:
        UnreadableFile: If it is damaged or not Rich Text.
    """
    if not raw.lstrip().startswith(b"{\\rtf"):
        raise UnreadableFile("is not Rich Text")
    source = raw.decode("latin-1")
    try:
        text = str(rtf_to_text(source, errors="replace"))  # type: ignore[no-untyped-call]  # striprtf has no types
    except (ValueError, IndexError, KeyError, LookupError) as error:  # of striprtf, with damaged files
        raise UnreadableFile("is not Rich Text, or is damaged") from error
    text = re.sub(r"\n+", "\n\n", text.replace("\r\n", "\n").replace("\x00", ""))
    page = _CODEPAGE.search(raw)
    shown = "".join(_shown(source, f"cp{int(page[1])}" if page else "cp1252"))
    signs = re.findall(r"(?<!\\)(?:\\\\)*([{}])", source)
    notes = () if signs.count("{") == signs.count("}") else ("is damaged or cut off; text may be missing",)
    return ParsedFile([parse_plain_text(text)], shown, notes)


def _shown(source: str, encoding: str) -> Iterator[str]:
    """Yield the text outside of control words and hidden groups, with codes replaced by their letters."""
    hidden, skipped, depth = 0, 0, 0
    for word, number, code, star, sign, brace, text in _TOKEN.findall(source):
        if brace:
            depth += 1 if brace == "{" else -1
            hidden = hidden if depth >= hidden else 0
        elif not hidden and (star or word in _HIDDEN):
            hidden = depth
        elif hidden:
            continue
        elif word == "u" and number:
            skipped = 1
            yield chr(int(number) % 65536).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        elif word in _SPACES:
            yield "\n"
        elif code:
            if not skipped:
                yield _letter(int(code, 16), encoding)
            skipped = 0
        elif sign in {"~", "_"}:
            yield " " if sign == "~" else "-"
        elif text:
            yield text[skipped:]
            skipped = 0


def _letter(code: int, encoding: str) -> str:
    try:
        return bytes([code]).decode(encoding, "replace")
    except LookupError:
        return bytes([code]).decode("cp1252", "replace")
