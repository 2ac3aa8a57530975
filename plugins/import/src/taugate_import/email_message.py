"""Emails (.eml, .mbox): the subject as title, sender and date as metadata, the text, and attached files."""

import base64
import dataclasses
import email
import email.errors
import email.header
import email.policy
import re
from collections.abc import Callable, Iterator, Sequence
from email.message import EmailMessage, Message, MIMEPart
from itertools import chain, groupby, starmap
from pathlib import Path

from taugate.data.parsed import ParsedDocument, ParsedFile, TextBuilder, UnreadableFile, with_unique_keys
from taugate.retrieval.documents.store import MetadataValue
from taugate_import.html import choose_encoding, parse_html
from taugate_import.plain_text import decode, parse_plain_text, printable_text
from taugate_import.word_share import count_words

ReadPart = Callable[[str, bytes], ParsedFile]
"""Parses an attached file, given its name and content. Raises UnreadableFile."""

_MAX_PARSED = 2000  # characters of a header that is parsed
_MAX_HEADER = 50_000  # of one that is read
_MAX_DEPTH = 10  # emails attached to emails
_MAX_PREAMBLE = 40  # words of the usual hint to old programs that this is a multipart email
_HEADER_OF_PART = re.compile(rb"(?mi)^content-(?:type|transfer-encoding|disposition): ?\w")
# The line between the emails of a mailbox: sender and date, after an empty line and before a header.
_FROM_LINE = re.compile(
    rb"(?:\A\s*|(?<=\n\n)|(?<=\r\n\r\n))From (?:\S* +(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b|[^\s@]*@\S* +\d+[-/. ])"
    rb"[^\r\n]* \d\d?:\d\d[^\r\n]*\r?\n(?=>?[!-9;-~]+:|>?From )"
)
_OF_TEXT = {"", ".txt", ".htm", ".html"}  # suffixes; other files are read by their suffix
_SHOWN = {"plain", "html", "x-amp-html"}
# Lines without spaces, up to an empty line or one that no encoder writes.
_BASE64 = re.compile(rb"\s*(?:[^\s_-]+[ \t]*(?:\r?\n|\Z))*")
_FLOWS = re.compile(r"(?m)(?<!^--) \n(?!-- $)")  # the end of a line that continues, not that of a signature's mark


class _Policy(email.policy.EmailPolicy):
    """Reads long headers as text, and not beyond a limit: the library's parsers take quadratic time and more."""

    def header_fetch_parse(self, name: str, value: str) -> str:
        """Return the value of a header."""
        is_text = len(value) > _MAX_PARSED and not name.lower().startswith("content-")
        parsed = ("x-text", value[:_MAX_HEADER]) if is_text else (name, value[:_MAX_PARSED])
        header: str = super().header_fetch_parse(*parsed)
        return header


def parse_email(raw: bytes, read_part: ReadPart, depth: int = 0) -> ParsedFile:
    """Read an email: one document, and those of each attached file."""
    message = email.message_from_bytes(raw, policy=_Policy())
    if not isinstance(message, EmailMessage) or not message.keys():
        raise UnreadableFile("is not an email, as it has no header")
    notes = [*_damage(message)][:1]
    texts, files = _parts(message, [message.get_body((kind,)) for kind in ("plain", "html")], notes)
    subject, builder = _header(message, "subject"), TextBuilder()
    for text in (document for parsed in texts for document in parsed.documents):
        for block in text.blocks:
            builder.add(text.text[block.start : block.end], block.kind, block.headings)
        subject = subject or text.title
    if not any(parsed.documents for parsed in texts):
        builder.add(subject, "prose")
        if not message.is_multipart() and message.get_content_maintype() == "text":
            notes.append("has no text below its subject")
    documents = [builder.document(subject, metadata=_facts(message))]
    source, left_out = [parsed.source_text for parsed in texts], [parsed.left_out for parsed in texts]
    source += (_header(message, name) for name in ("subject", "from", "to", "cc"))
    for number, part in enumerate(files, start=1):
        name = part.get_filename() or f"part {number}"
        try:
            if part.get_content_type() == "message/rfc822":
                name = part.get_filename() or f"email {number}"
                if depth >= _MAX_DEPTH:
                    raise UnreadableFile("is attached too deeply")
                attached = parse_email(_bytes(part), read_part, depth + 1)
            elif part.get_content_subtype() in _SHOWN and Path(name).suffix.lower() in _OF_TEXT:
                attached = _text(part)
            else:
                attached = read_part(name, _bytes(part))
        except UnreadableFile as error:
            if not _is_decoration(part):
                notes.append(f"has an attached file that cannot be read: {name} {error}")
            continue
        documents += _with_key(name, attached.documents)
        source.append(attached.source_text)
        left_out.append(attached.left_out)
        notes += [f"{note} (attached file {name})" for note in attached.notes]
    return ParsedFile(with_unique_keys(documents), "\n".join(source), tuple(notes), "\n".join(left_out))


def parse_mailbox(raw: bytes, read_part: ReadPart) -> ParsedFile:
    """Read the emails of a mailbox, each as in `parse_email`."""
    starts = [match.span() for match in _FROM_LINE.finditer(raw)]
    if not starts:
        raise UnreadableFile("is not a mailbox, as no line begins an email")
    ends = [start for start, _ in starts[1:]] + [len(raw)]
    documents: list[ParsedDocument] = []
    source, notes, left_out = [raw[: starts[0][0]].decode("utf-8", "replace")], [], []
    for number, ((_, start), end) in enumerate(zip(starts, ends, strict=True), start=1):
        try:
            mail = parse_email(re.sub(rb"(?m)^>(>*From )", rb"\1", raw[start:end]), read_part)
        except UnreadableFile as error:
            notes.append(f"holds an email that cannot be read: number {number} {error}")
            continue
        documents += _with_key(str(number), mail.documents)
        source.append(mail.source_text)
        left_out.append(mail.left_out)
        notes += [f"{note} (email {number})" for note in mail.notes]
    return ParsedFile(documents, "\n".join(source), tuple(notes), "\n".join(left_out))


def _with_key(key: str, documents: list[ParsedDocument]) -> list[ParsedDocument]:
    """Return documents with a key before their own."""
    return [dataclasses.replace(each, key="/".join(filter(None, [key, each.key]))) for each in documents]


def _parts(
    part: MIMEPart, bodies: Sequence[MIMEPart | None], notes: list[str]
) -> tuple[list[ParsedFile], list[MIMEPart]]:
    """Return the texts of a part and the files attached to it; of alternative texts, those with most words.

    Args:
        bodies: Parts that are text even if they have the name of a file.
    """
    is_shown = part.get_content_maintype() == "text" and part.get_content_subtype() in _SHOWN
    if any(part is body for body in bodies) or (is_shown and not part.is_attachment() and not part.get_filename()):
        try:
            return [_text(part)], []
        except UnreadableFile as error:
            notes.append(f"has a text that cannot be read: it {error}")
            return [], []
    if not part.is_multipart() or part.get_content_type() == "message/rfc822":
        return [], [part]
    read = [_parts(child, bodies, notes) for child in part.iter_parts() if isinstance(child, MIMEPart)]
    texts = [texts for texts, _ in read]
    if part.get_content_subtype() == "alternative":
        texts = [max(texts, key=lambda parsed: count_words(text.source_text for text in parsed).total(), default=[])]
    return [*chain(*texts)], [*chain(*(files for _, files in read))]


def _damage(message: EmailMessage) -> Iterator[str]:
    """Yield the faults in the form of an email."""
    for part in message.walk():
        for defect in part.defects:
            yield f"is damaged ({type(defect).__name__}); text may be missing"
        if not part.is_multipart() and _HEADER_OF_PART.search(_bytes(part)):
            yield "is damaged: headers of a part are read as text"
        if part.is_multipart() and (part.epilogue or "").strip():
            yield "is damaged: text after its last part is not read"
        if part.is_multipart() and len((part.preamble or "").split()) > _MAX_PREAMBLE:
            yield "is damaged: text before its first part is not read"


def _text(part: MIMEPart) -> ParsedFile:
    """Return the text of a part, without documents if it is blank."""
    raw, charset = _bytes(part), part.get_content_charset("")
    if not raw.strip():
        return ParsedFile([], "")
    if part.get_content_subtype() != "plain":
        return parse_html(raw, charset)
    text = printable_text(_decoded(raw, charset))
    if str(part.get_param("format")).lower() == "flowed":
        text = _unfolded(text, " " if str(part.get_param("delsp")).lower() != "yes" else "")
    return ParsedFile([parse_plain_text(text)], text)


def _decoded(raw: bytes, charset: str) -> str:
    return decode(raw, choose_encoding(raw, [charset])[0].codec)


def _unfolded(text: str, space: str) -> str:
    """Join lines that a mail program divided (RFC 3676): those that end with a space."""
    unfolded = []
    for quotes, lines in groupby(text.split("\n"), key=lambda line: len(line) - len(line.lstrip(">"))):
        written = "\n".join(line[quotes:].removeprefix(" ") for line in lines)
        unfolded += [f"{'>' * quotes}{' ' * bool(quotes)}{line}" for line in _FLOWS.sub(space, written).split("\n")]
    return "\n".join(unfolded)


def _is_decoration(part: MIMEPart) -> bool:
    """Return whether a part is a picture shown by the text, such as a logo, or a signature."""
    kind = part.get_content_type()
    return kind.endswith("-signature") or (kind.startswith("image/") and part.get("content-id") is not None)


def _bytes(part: MIMEPart) -> bytes:
    if part.get_content_type() == "message/rfc822":
        inner = part.get_payload()
        messages = inner if isinstance(inner, list) else []
        return b"".join(message.as_bytes() for message in messages if isinstance(message, Message))
    if str(part.get("content-transfer-encoding", "")).strip().lower() == "base64":
        return _from_base64(str(part.get_payload()).encode("utf-8", "surrogateescape"))
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _from_base64(raw: bytes) -> bytes:
    """Decode base64 that may be cut off, with the text that a mailing list puts behind it."""
    encoded = _BASE64.match(raw)
    end = encoded.end() if encoded else 0
    digits = re.sub(rb"[^A-Za-z0-9+/]", b"", raw[:end])
    return base64.b64decode(digits[: len(digits) - (len(digits) % 4 == 1)] + b"==") + raw[end:]


def _header(message: EmailMessage, name: str) -> str:
    """Return a header, its encoded words (RFC 2047) decoded by the same labels as texts; "" if it is missing."""
    value = next((str(value) for key, value in message.raw_items() if key.lower() == name), "")
    if not value.isascii():
        charset = next(filter(None, message.get_charsets()), "windows-1252")
        value = _decoded(value.encode("utf-8", "surrogateescape"), charset)
    try:
        words = email.header.decode_header(value)
    except email.errors.HeaderParseError:
        words = [(value, None)]
    return " ".join("".join(starmap(_word, words)).split())


def _word(word: str | bytes, charset: str | None) -> str:
    if isinstance(word, str):
        return word
    return _decoded(word, charset.partition("*")[0]) if charset else word.decode("latin-1")  # as email encodes it


def _facts(message: EmailMessage) -> dict[str, MetadataValue]:
    """Return sender, receivers and date of an email."""
    facts: dict[str, MetadataValue] = {
        name: value for name in ("from", "to", "cc") if (value := _header(message, name))
    }
    try:
        facts["created"] = message["date"].datetime.date().isoformat()
    except (AttributeError, ValueError, IndexError, TypeError):  # no date, or a damaged one
        return facts
    return facts
