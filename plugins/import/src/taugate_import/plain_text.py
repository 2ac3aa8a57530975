"""Plain text in any encoding to paragraphs, source code line by line, and captions without their times.

Decoding of text in any encoding in use: the marked one, or the most likely one. chardet decoded more files exactly than
any other detector (docs/dependencies.md). A byte that is invalid in an encoding costs one character; the other text is
read.
"""

import codecs
import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import chardet

from taugate.data.parsed import ParsedDocument, ParsedFile, TextBuilder, UnreadableFile

_SAMPLE = 1 << 18  # bytes that the encoding is guessed from
_REPLACEMENT = "\ufffd"

# Encodings that can be guessed: chardet's name, the codec that reads it, and the name for users. The codecs are
# those of the WHATWG Encoding Standard: Windows-1252 for ISO-8859-1, UHC for EUC-KR, and so on. Encodings that
# are not in the list, such as those of mainframes, would be guessed by mistake more often than they occur.
_CANDIDATES = {
    **{f"cp{number}": (f"cp{number}", f"windows-{number}") for number in (*range(1250, 1259), 874)},
    **{f"iso8859-{number}": (f"iso8859-{number}", f"iso-8859-{number}") for number in (2, 5, 6, 7, 8, 13, 15)},
    **{f"cp{number}": (f"cp{number}", f"ibm{number}") for number in (437, 850, 858, 852, 866)},
    **{name: (name, name) for name in ("koi8-r", "koi8-u", "gb18030", "utf-8")},
    **{"iso8859-1": ("cp1252", "windows-1252"), "iso8859-9": ("cp1254", "windows-1254")},
    **{"mac-roman": ("mac-roman", "macintosh"), "mac-cyrillic": ("mac-cyrillic", "x-mac-cyrillic")},
    **{"cp932": ("cp932", "shift_jis"), "shift_jis_2004": ("cp932", "shift_jis"), "euc_jis_2004": ("euc_jp", "euc-jp")},
    **{"big5hkscs": ("big5hkscs", "big5"), "cp949": ("cp949", "euc-kr"), "euc_kr": ("cp949", "euc-kr")},
}
_OF_WINDOWS = ("cp1252", "cp1251", "cp1250", "cp1257")
_SURER = 1.05  # factor by which another encoding of Windows or ISO 8859 has to be more likely than windows-1252
_MAX_INVALID = 0.05  # of the characters of a Japanese or Korean text
_MARKS = (
    *((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16")),
    *((codecs.BOM_UTF16_BE, "utf-16"), (codecs.BOM_UTF8, "utf-8-sig")),
)

# One character of two bytes or more in UTF-8.
_UTF8_CHARACTER = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_SPACE = re.compile("[ \n,.\u3001\u3002\uff0c]")  # also the commas and full stops of Chinese and Japanese
# ISO-2022-JP in segments: an escape sequence, and the bytes up to the next one.
_ISO_2022_JP = re.compile(rb"\x1b(\$\(D|\$[@B]|\([BJI])([^\x1b]*)")

# Characters that browsers read and Python's codecs lack: the circled numbers of Japanese, Big5's euro sign.
_PRIVATE_USE = re.compile("[\uf8f0-\uf8f3]")  # Python's Shift_JIS decodes invalid bytes to these
_SUPPLEMENTS = {"euc_jp": "euc_jis_2004", "big5hkscs": "cp950"}

_PLAIN_TEXT_CONTROL = re.compile("[\x00-\x08\x0e-\x1f]")

_NAMES = """
py pyi js mjs cjs jsx ts tsx java kt kts scala groovy gradle c h cc cpp cxx hh hpp cs fs vb go rs rb php swift m mm r jl
lua pl pm dart ex exs erl hrl hs ml mli clj cljs el lisp scm nim zig v vhd sv asm s f f90 pas d cu cl glsl hlsl sol
sh bash zsh fish ps1 psm1 bat cmd sql graphql gql proto thrift tf hcl yaml yml toml ini cfg conf properties cmake mk
make dockerfile tex sty bib css scss sass less vue svelte diff patch log
"""
SUFFIXES = tuple(f".{name}" for name in _NAMES.split())
"""Suffixes of files that are read as source code. A file without a suffix, such as Makefile, is read as text."""

_TIME = r"(?:\d{1,4}:)?\d{1,4}:\d{1,2}[.,]\d{1,6}"
_TIMING = re.compile(rf"\s*({_TIME})\s*-->\s*({_TIME})")
_NO_CUE = re.compile(r"(?:NOTE|STYLE|REGION)(?!\S)")
_SPEAKER = re.compile(r"^\s*<v(?:\.[^\s<>]*)?[ \t]+([^<>]+)>")
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|<[\d:.]+>|\{\\[^{}]*\}")  # tags, times of words, and codes of positions


@dataclass(frozen=True, slots=True)
class Encoding:
    """A text encoding."""

    codec: str
    name: str


def marked_encoding(raw: bytes) -> Encoding | None:
    """Return the encoding of the byte order mark at the start of a file, None if there is none."""
    return next((Encoding(name, name) for mark, name in _MARKS if raw.startswith(mark)), None)


def guess_encoding(raw: bytes) -> Encoding:
    """Return the most likely encoding of a text: windows-1252 unless another is clearly more likely.

    Args:
        raw: Content of the file, without a byte order mark. The guess is based on 256 KiB, but the check for UTF-8 on
            all of it.
    """
    if certain := _iso_2022(raw) or _utf_16(raw[:_SAMPLE]):
        return certain
    if is_utf8(raw):
        return Encoding("utf-8", "utf-8")
    guesses = chardet.detect_all(
        _informative_part(raw), ignore_threshold=True, compat_names=False, include_encodings=_CANDIDATES
    )
    western = max((guess["confidence"] for guess in guesses if _codec(guess["encoding"]) == "cp1252"), default=0.0)
    best = guesses[0]["encoding"]
    surer = _SURER if best and best.startswith(("cp125", "iso8859")) else 1.0
    if best not in _CANDIDATES or best == "utf-8" or western * surer >= guesses[0]["confidence"]:
        best = "cp1252"
    if best == "cp1252" and b"\xa4" in raw and not re.search(rb"[\x80-\x9f]", raw):
        best = "iso8859-15"  # its euro sign is the currency sign of windows-1252, which is very rare
    text = decode(raw[:_SAMPLE], _CANDIDATES[best][0])
    # Several encodings often give the same text; then the one used by Windows is named.
    same = (name for name in _OF_WINDOWS if decode(raw[:_SAMPLE], name) == text)
    return Encoding(*_CANDIDATES[next(same, best)])


def _codec(name: str | None) -> str | None:
    return _CANDIDATES[name][0] if name in _CANDIDATES else None


def _informative_part(raw: bytes) -> bytes:
    """Return 256 KiB from the first line that is not ASCII, as the text before does not depend on the encoding."""
    first = re.search(rb"[\x80-\xff]", raw)
    if first is None or first.start() < _SAMPLE // 2:
        return raw[:_SAMPLE]
    start = raw.rfind(b"\n", 0, first.start()) + 1
    return raw[max(start, first.start() - _SAMPLE // 2) :][:_SAMPLE]


def is_utf8(raw: bytes) -> bool:
    """Return whether a text is UTF-8: all of it, or at least as many characters beyond ASCII as invalid bytes.

    A character of UTF-8 is nonsense in any other encoding of letters, so a damaged file in UTF-8, or one with a piece
    of another file in it, is distinguished from a file in another encoding.
    """
    try:
        raw.decode()
    except UnicodeDecodeError:
        remaining = _UTF8_CHARACTER.sub(b"", raw)
        invalid = sum(map(len, re.findall(rb"[\x80-\xff]+", remaining)))
        return len(_UTF8_CHARACTER.findall(raw)) >= invalid
    return True


def _utf_16(sample: bytes) -> Encoding | None:
    """Return UTF-16 or UTF-32 if a text without a byte order mark is in one of these.

    Its bytes include control characters, and are letters and spaces if two or four of them form one character.
    """
    if not _CONTROL.search(sample):
        return None
    likeliest, most_spaces = None, 0
    for codec in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        unit = int(codec[4:6]) // 8
        try:
            text = codecs.getincrementaldecoder(codec)().decode(sample[: len(sample) // unit * unit])
        except UnicodeDecodeError:
            continue
        odd = sum(
            unicodedata.category(character) in {"Cc", "Cn", "Co"} and character not in "\t\n\f\r" for character in text
        )
        spaces = len(_SPACE.findall(text))
        if spaces > most_spaces and odd <= len(text) // 100:
            likeliest, most_spaces = Encoding(codec, codec.replace("-le", "le").replace("-be", "be")), spaces
    return likeliest


def _iso_2022(raw: bytes) -> Encoding | None:
    """Return the seven-bit encoding of Japanese or Korean if a text is in one."""
    codec, name = ("iso2022_kr", "iso-2022-kr") if b"\x1b$)C" in raw else ("iso2022_jp", "iso-2022-jp")
    if b"\x1b$" not in raw or not raw.isascii():
        return None
    text = decode(raw, codec)
    return Encoding(codec, name) if _MAX_INVALID * len(text) >= text.count(_REPLACEMENT) else None


def decode(raw: bytes, codec: str, errors: str = "taugate-replace") -> str:
    """Decode a text, without its byte order mark, according to the WHATWG Encoding Standard.

    An invalid byte becomes U+FFFD or, in UTF-8, its character in windows-1252 if it is the only one in a row.
    """
    if codec == "iso2022_jp":
        raw, codec = _ISO_2022_JP.sub(_as_euc_jp, raw), "euc_jp"
    text = raw.decode(codec, errors).removeprefix("\ufeff")
    return _PRIVATE_USE.sub(_REPLACEMENT, text) if codec == "cp932" else text


def _as_euc_jp(segment: re.Match[bytes]) -> bytes:
    escape, characters = segment[1], segment[2]
    if escape == b"(I":
        return b"".join(b"\x8e" + bytes([byte | 0x80]) if byte > 0x20 else bytes([byte]) for byte in characters)
    if escape == b"$(D":
        return re.sub(rb"[!-~]{2}", lambda pair: bytes((0x8F, pair[0][0] | 0x80, pair[0][1] | 0x80)), characters)
    return characters if escape[:1] == b"(" else bytes(byte | 0x80 if byte > 0x20 else byte for byte in characters)


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Return the replacement of an invalid byte, and the position to continue at; registered as an error handler."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    encoding, raw, start, end = error.encoding.replace("-", "_"), error.object, error.start, error.end
    if encoding.startswith("utf_8"):
        return (raw[start:end].decode("cp1252", "replace") if end - start == 1 else _REPLACEMENT), end
    if encoding == "gb18030" and raw[start] == 0x80:
        return "€", start + 1
    pair = raw[start : start + 2]
    if encoding == "euc_jp" and re.fullmatch(rb"[\xa1-\xfe]{2}", pair):  # browsers read the characters of Windows
        row, cell = pair[0] - 0xA1, pair[1] - 0xA1
        shifted = row // 2 + (0x81 if row < 62 else 0xC1), cell + (0x9F if row % 2 else 0x40 + (cell > 62))
        if _REPLACEMENT not in (text := bytes(shifted).decode("cp932", "replace")):
            return text, start + 2
    if supplement := _SUPPLEMENTS.get(encoding):
        try:
            return pair.decode(supplement), start + 2
        except UnicodeDecodeError:
            return _REPLACEMENT, start + 1
    return _REPLACEMENT, end


codecs.register_error("taugate-replace", _replace)


@dataclass(frozen=True, slots=True)
class DecodedText:
    """The bytes of a file as text.

    Attributes:
        notes: Notes on the encoding, as in `ParsedFile`; empty if the file is UTF-8 or names its encoding.
    """

    text: str
    notes: tuple[str, ...] = ()


def decode_text(raw: bytes) -> DecodedText:
    """Decode the bytes of a text file: by its byte order mark, as UTF-8, or in the most likely encoding."""
    marked = marked_encoding(raw)
    encoding = marked or guess_encoding(raw)
    text = printable_text(decode(raw, encoding.codec))
    return DecodedText(text, () if marked else encoding_notes(raw, encoding))


def encoding_notes(raw: bytes, encoding: Encoding) -> tuple[str, ...]:
    """Return the notes on a guessed encoding: its name, or that some bytes are invalid."""
    if encoding.codec != "utf-8":
        return (f"is read as {encoding.name}",)
    try:
        raw.decode()
    except UnicodeDecodeError:
        return ("is read as utf-8, and invalid bytes as windows-1252",)
    return ()


def printable_text(text: str) -> str:
    """Return a text with line feeds as line breaks, and without other control characters."""
    if len(_PLAIN_TEXT_CONTROL.findall(text[:_SAMPLE])) > len(text[:_SAMPLE]) // 100:
        raise UnreadableFile("is not text")
    return _PLAIN_TEXT_CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def parse_plain_text(text: str) -> ParsedDocument:
    """Divide a text into paragraphs at its empty lines."""
    builder = TextBuilder()
    for paragraph in re.split(r"\n[ \t]*\n", text.replace("\f", "\n\n")):
        builder.add(paragraph, "prose")
    return builder.document("")


def parse_code(raw: bytes) -> ParsedFile:
    """Read source code."""
    decoded = decode_text(raw)
    builder = TextBuilder()
    for block in _blocks(decoded.text.replace("\f", "\n").split("\n")):
        builder.add("\n".join(block), "code")
    return ParsedFile([builder.document("")], decoded.text, decoded.notes)


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield functions and other parts, which end at an empty line before a new part that is not indented."""
    block: list[str] = []
    for number, line in enumerate(lines):
        before = lines[number - 1] if number else ""
        if block and not before.strip() and line.strip() and not line[:1].isspace() and line[:1] not in "})]":
            yield block
            block = []
        block.append(line)
    yield block


def parse_captions(raw: bytes) -> ParsedFile:
    """Read captions, one paragraph each; lines that are still shown by the next one are read once."""
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
