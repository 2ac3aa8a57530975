"""Rich text: trees of nodes that editors store as JSON, and Rich Text Format (.rtf), with striprtf.

Editor.js, ProseMirror, TipTap, Lexical, Slate, Draft.js, Quill, Notion, Contentful and Portable Text have such trees.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TypeGuard

from striprtf.striprtf import FONTTABLE, charset_map, destinations, font_table_group, rtf_to_text, specialchars

from taugate.data.parsed import ParsedFile, UnreadableFile
from taugate.storage.files import Json
from taugate_import.plain_text import parse_plain_text

_TYPES = ("type", "nodeType", "_type")
_TEXTS = ("text", "value", "plain_text", "insert")
_TYPE_OF_EDITOR = re.compile(
    r"paragraph|head|list|quote|code|image|table|text|block|span|doc|root|link|break|rule|divider|delimiter|embed|callout|"
    r"toggle|to_?do|check|column|media|video|audio|file|raw|warning|unstyled|atomic|mention|emoji|equation|bookmark|row|"
    r"cell|entry|asset|attaches|gallery|tool|bold|italic|underline|strike|"
    r"^(?:p|h[1-6r]|ul|ol|li|lic|a|tr|td|th|img|pdf|person)$",
    re.IGNORECASE,
)
_INLINE = re.compile(
    r"^(?:text|span|a|code|strong|em|bold|italic|underline|strikethrough|email|phone|emoji|equation|linebreak|tab)$|link|mention|hard_?break|inline|hashtag",
    re.IGNORECASE,
)
_LINE_BREAK = re.compile(r"line_?break|hard_?break", re.IGNORECASE)
# Data that an editor stores with the words: appearance, link targets, and authors.
MARKUP = frozenset(
    re.findall(
        r"\S+",
        """
        type nodeType _type _key key id _id object version format detail mode style styles direction textFormat
        textStyle indent level depth start end offset length colspan rowspan colwidth width height align
        alignment marks markDefs annotations attributes color inlineStyleRanges entityRanges entityMap tunes
        time href src url target rel class listType listItem ordered tag lang language link created_time
        last_edited_time created_by last_edited_by parent has_children archived in_trash stretched withBorder
        withBackground withHeadings is_toggleable next_cursor has_more page_or_block request_id plain_text
        """,
    )
)
_WORDS_OF_ATTRIBUTES = ("alt", "title", "caption", "label", "latex", "text")

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


def rich_text(value: object) -> str | None:
    """Return the text of a rich text, with an empty line between blocks; None if a value is not rich text."""
    return "\n\n".join(block for block in _blocks(value) if block.strip()) if is_rich_text(value) else None


def is_rich_text(value: object) -> bool:
    """Return whether a value is the tree of an editor, and contains nothing that its text would not show."""
    if isinstance(value, list):
        nodes = [child for child in value if not isinstance(child, str)]
        return bool(nodes) and all(map(_is_node, nodes)) and all(map(_shows_all, nodes))
    if not isinstance(value, Mapping):
        return False
    if _is_node(value) and any(isinstance(value.get(name), list) for name in ("children", "content")):
        return _shows_all(value)
    containers = [name for name in ("blocks", "ops", "results", "root") if name in value]
    if len(containers) != 1 or not value.keys() <= MARKUP | {containers[0]}:
        return False
    return is_rich_text(value[containers[0]])


def _is_node(value: object) -> bool:
    """Return whether a value looks like a node of an editor's tree."""
    if not isinstance(value, Mapping):
        return False
    if "insert" in value:
        return value.keys() <= {"insert", "attributes"}
    nodes = next((value[name] for name in ("children", "content") if isinstance(value.get(name), list)), None)
    kind = _type(value)
    if kind is None:
        is_plain = isinstance(value.get("children"), list) and value.keys() <= MARKUP | {"children"}
        return is_plain and bool(value["children"]) and all(map(_is_child, value["children"]))
    if not _TYPE_OF_EDITOR.search(kind):
        return False
    if nodes is not None:
        return all(map(_is_child, nodes))
    held = value.get("data", value.get(kind, value.get("attrs")))
    return (
        isinstance(held, Mapping) or any(isinstance(value.get(name), str) for name in _TEXTS) or value.keys() <= MARKUP
    )


def _is_child(value: object) -> bool:
    return _is_node(value) or (isinstance(value, Mapping) and isinstance(value.get("text"), str))


def _type(node: Mapping[str, Json]) -> str | None:
    return next((kind for name in _TYPES if isinstance(kind := node.get(name), str)), None)


def _shows_all(value: object) -> bool:
    """Return whether a tree has no number outside of its markup, as such a number would be lost."""
    if isinstance(value, Mapping):
        return all(_shows_all(child) for name, child in value.items() if name not in MARKUP and name != "attrs")
    if isinstance(value, list):
        return all(map(_shows_all, value))
    return value is None or isinstance(value, str | bool)


def _blocks(value: object) -> Iterator[str]:
    """Yield the paragraphs of a tree; neighbouring inline nodes are one paragraph."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        line = ""
        for child in value:
            if isinstance(child, list) and all(isinstance(cell, str) for cell in child):
                yield " | ".join(child)  # a row of a table
            elif _is_inline(child):
                line += _inline(child)
            else:
                yield line
                line = ""
                yield from _blocks(child)
        yield line
    elif isinstance(value, Mapping):
        if any(isinstance(value.get(name), str) for name in _TEXTS):
            yield _inline(value)
        for name, child in value.items():
            if name == "attrs" and isinstance(child, Mapping):
                yield from (text for key in _WORDS_OF_ATTRIBUTES if isinstance(text := child.get(key), str))
            elif name not in MARKUP and not (name in _TEXTS and isinstance(child, str)):
                yield from _blocks(child)


def _is_inline(value: object) -> TypeGuard[Mapping[str, Json] | str]:
    if not isinstance(value, Mapping):
        return isinstance(value, str)
    kind = _type(value)
    return bool(_INLINE.search(kind)) if kind is not None else any(name in value for name in _TEXTS)


def _inline(node: Mapping[str, Json] | str) -> str:
    """Return the text of a node within a paragraph."""
    if isinstance(node, str):
        return node
    kind = _type(node) or ""
    if _LINE_BREAK.search(kind):
        return "\n"
    for name in ("plain_text", "insert", "text", "value"):
        if isinstance(node.get(name), str):
            return str(node[name])
    return "".join(text for name, child in node.items() if name not in MARKUP for text in _inline_parts(name, child))


def _inline_parts(name: str, child: object) -> Iterator[str]:
    if name == "attrs" and isinstance(child, Mapping):
        yield from (text for key in _WORDS_OF_ATTRIBUTES if isinstance(text := child.get(key), str))
    else:
        yield from _blocks(child)


def parse_rtf(raw: bytes) -> ParsedFile:
    """Read Rich Text."""
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
