"""Emails (.eml, .mbox): the subject as title, sender and date as metadata, the text, and attached files."""

import dataclasses
import email
import email.policy
import re
from collections.abc import Callable, Iterator
from email.message import EmailMessage, Message, MIMEPart

from taugate.ingestion.importers.html import parse_html
from taugate.ingestion.importers.plain_text import decode_text, parse_plain_text
from taugate.ingestion.importers.word_share import count_words
from taugate.ingestion.parsed import ParsedDocument, ParsedFile, UnreadableFile, with_unique_keys
from taugate.retrieval.documents.store import MetadataValue

ReadPart = Callable[[str, bytes], ParsedFile]
"""Parses an attached file, given its name and content. Raises UnreadableFile."""

_MAX_DEPTH = 10  # emails attached to emails
_MAX_PREAMBLE = 40  # words of the usual hint to old programs that this is a multipart email
_HEADER_OF_PART = re.compile(rb"(?mi)^content-(?:type|transfer-encoding|disposition): ?\w")
_FROM_LINE = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\r\n\r\n))From [^\r\n]* \d\d:\d\d[^\r\n]*\r?\n")


def parse_email(raw: bytes, read_part: ReadPart, depth: int = 0) -> ParsedFile:
    """Read an email: one document, and those of each attached file.

    Args:
        raw: Content of the email.
        read_part: Parses an attached file.
        depth: Number of emails that this one is nested in.

    Raises:
        UnreadableFile: If it is not an email.
    """
    message = email.message_from_bytes(raw, policy=email.policy.default)
    if not isinstance(message, EmailMessage) or not message.keys():
        raise UnreadableFile("is not an email, as it has no header")
    body, notes = _body(message)
    documents = [
        dataclasses.replace(document, title=_header(message, "subject") or document.title, metadata=_facts(message))
        for document in body.documents
    ]
    left_out = [body.left_out]
    source = [body.source_text, *(_header(message, name) for name in ("subject", "from", "to", "cc"))]
    for number, part in enumerate(_attached(message), start=1):
        name = part.get_filename() or f"part {number}"
        try:
            if part.get_content_type() == "message/rfc822":
                name = part.get_filename() or f"email {number}"
                if depth >= _MAX_DEPTH:
                    raise UnreadableFile("is attached too deeply")
                attached = parse_email(_bytes(part), read_part, depth + 1)
            else:
                attached = read_part(name, _bytes(part))
        except UnreadableFile as error:
            if _is_decoration(part):
                continue
            notes.append(f"has an attached file that cannot be read: {name} {error}")
            continue
        documents += [
            dataclasses.replace(document, key="/".join(filter(None, [name, document.key])))
            for document in attached.documents
        ]
        source.append(attached.source_text)
        left_out.append(attached.left_out)
        notes += [f"{note} (attached file {name})" for note in attached.notes]
    return ParsedFile(with_unique_keys(documents), "\n".join(source), tuple(notes), "\n".join(left_out))


def parse_mailbox(raw: bytes, read_part: ReadPart) -> ParsedFile:
    """Read the emails of a mailbox, each as in `parse_email`.

    Args:
        raw: Content of the file.
        read_part: Parses an attached file.

    Raises:
        UnreadableFile: If it is not a mailbox.
    """
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
        documents += [
            dataclasses.replace(document, key="/".join(filter(None, [str(number), document.key])))
            for document in mail.documents
        ]
        source.append(mail.source_text)
        left_out.append(mail.left_out)
        notes += [f"{note} (email {number})" for note in mail.notes]
    return ParsedFile(documents, "\n".join(source), tuple(notes), "\n".join(left_out))


def _body(message: EmailMessage) -> tuple[ParsedFile, list[str]]:
    """Return the text of an email, plain or from HTML, whichever has more words, and notes about it."""
    notes = [*_damage(message)][:1]
    read: list[ParsedFile] = []
    for kind in ("plain", "html"):
        part = message.get_body((kind,))
        if part is not None and (parsed := _text(part)) is not None:
            read.append(parsed)
    if not read:
        if not message.is_multipart() and message.get_content_maintype() == "text":
            notes.append("has no text below its subject")
        return ParsedFile([ParsedDocument("", "", _header(message, "subject"), ())], ""), notes
    return max(read, key=lambda parsed: count_words([parsed.source_text]).total()), notes


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


def _text(part: MIMEPart) -> ParsedFile | None:
    """Return the text of a part, None if it is blank."""
    raw = _bytes(part)
    if not raw.strip():
        return None
    charset = part.get_content_charset() or ""
    try:
        text = raw.decode(charset) if charset else decode_text(raw).text
    except (LookupError, UnicodeDecodeError):
        text = decode_text(raw).text
    if part.get_content_subtype() == "html":
        return parse_html(("\ufeff" + text).encode("utf-8", "replace"))
    text = text.replace("\r\n", "\n")
    return ParsedFile([parse_plain_text(text)], text)


def _attached(message: EmailMessage) -> Iterator[EmailMessage]:
    """Yield the parts of an email that are not alternatives of its text."""
    bodies = [message.get_body((kind,)) for kind in ("plain", "html")]
    parts: list[EmailMessage] = [message]
    while parts:
        part = parts.pop(0)
        if any(part is body for body in bodies):
            continue
        if part.get_content_type() == "message/rfc822" or not part.is_multipart():
            yield part
        else:
            parts = [child for child in part.iter_parts() if isinstance(child, EmailMessage)] + parts


def _is_decoration(part: EmailMessage) -> bool:
    """Return whether a part is a picture shown by the text, such as a logo, or a signature."""
    kind = part.get_content_type()
    return kind.endswith("-signature") or (kind.startswith("image/") and part.get("content-id") is not None)


def _bytes(part: MIMEPart) -> bytes:
    if part.get_content_type() == "message/rfc822":
        inner = part.get_payload()
        messages = inner if isinstance(inner, list) else []
        return b"".join(message.as_bytes() for message in messages if isinstance(message, Message))
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _header(message: EmailMessage, name: str) -> str:
    try:
        return " ".join(str(message.get(name, "")).split())
    except (ValueError, IndexError, AttributeError, LookupError):  # of email, with damaged headers
        return " ".join(str(dict(message.raw_items()).get(name, "")).split())


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
