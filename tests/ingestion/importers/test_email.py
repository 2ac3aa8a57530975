"""Emails as text: headers, forms of the text, attached files, mailboxes."""

from email.message import EmailMessage

import pytest

from taugate.ingestion.importers.email_message import parse_email
from taugate.ingestion.importers.parse import PARSERS
from taugate.ingestion.importers.shown_numbers import lost_numbers
from taugate.ingestion.importers.word_share import share_kept
from taugate.ingestion.parsed import ParsedFile, UnreadableFile


def mail(text: str, subject: str = "Seal of pump 7") -> EmailMessage:
    """Return an email with a text."""
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = subject, "Ada <ada@example.org>", "bob@example.org"
    message["Date"] = "Mon, 05 Feb 2024 10:00:00 +0100"
    message.set_content(text)
    return message


def read(raw: bytes, kind: str = ".eml") -> ParsedFile:
    """Return the parsed email, after a check that it keeps the words of the file."""
    parsed = PARSERS[kind](raw)
    assert share_kept(parsed.source_text, parsed.documents, parsed.left_out) == 1
    assert not lost_numbers(parsed.source_text, parsed.documents, parsed.left_out)
    return parsed


def test_email_headers_become_title_and_metadata() -> None:
    document = read(mail("The seal leaks.\n\nReplace it.\n").as_bytes()).documents[0]
    assert (document.title, document.text) == ("Seal of pump 7", "The seal leaks.\n\nReplace it.")
    assert document.metadata == {"from": "Ada <ada@example.org>", "to": "bob@example.org", "created": "2024-02-05"}


def test_body_form_with_more_words_read() -> None:
    short, equal = mail("Open this in a browser."), mail("The seal of the pump leaks.")
    for message in (short, equal):
        message.add_alternative("<h1>Seal</h1><p>The seal of the pump leaks.</p>", subtype="html")
    equal.get_body(("html",)).set_content("<p>The seal of the pump leaks.</p>", subtype="html")
    assert read(short.as_bytes()).documents[0].text == "# Seal\n\nThe seal of the pump leaks."
    assert read(equal.as_bytes()).documents[0].text == "The seal of the pump leaks."


def test_legacy_email_encodings_are_decoded() -> None:
    raw = (
        b"Subject: =?iso-8859-1?Q?Gr=F6=DFe?=\r\nContent-Type: text/plain; charset=iso-8859-1\r\n"
        b"Content-Transfer-Encoding: 8bit\r\n\r\nGr\xf6\xdfe der Pumpe\r\n"
    )
    document = read(raw).documents[0]
    assert (document.title, document.text) == ("Größe", "Größe der Pumpe")


def test_attached_files_become_documents() -> None:
    message = mail("See the list.")
    message.add_attachment(b"part,days\nseal,30\nring,60\n", "text", "csv", filename="parts.csv")
    message.add_attachment(b"\x89PNG", "image", "png", filename="photo.png")
    message.add_attachment(mail("Inner words.", "Inner"))
    parsed = read(message.as_bytes())
    assert [(document.key, document.title, document.text) for document in parsed.documents] == [
        ("", "Seal of pump 7", "See the list."),
        ("parts.csv/1", "", "part: seal\ndays: 30"),
        ("parts.csv/2", "", "part: ring\ndays: 60"),
        ("email 3", "Inner", "Inner words."),
    ]
    assert parsed.notes == ("has an attached file that cannot be read: photo.png is of a kind that is not read",)


def test_attached_files_of_equal_name_get_distinct_keys() -> None:
    message = mail("Two files.")
    for text in ("One.", "Two."):
        message.add_attachment(text.encode(), "text", "plain", filename="note.txt")
    assert [document.key for document in read(message.as_bytes()).documents] == ["", "note.txt", "note.txt (2)"]


def test_logos_and_signatures_are_not_reported() -> None:
    message = mail("Text")
    message.add_attachment(b"\x89PNG", "image", "png", filename="logo.png", cid="<logo>")
    message.add_attachment(b"x", "application", "pkcs7-signature", filename="smime.p7s")
    assert read(message.as_bytes()).notes == ()


def test_truncated_email_is_noted() -> None:
    message = mail("First part.")
    message.add_attachment(b"Second part.", "text", "plain", filename="a.txt")
    raw = message.as_bytes()
    assert read(raw[: raw.rindex(b"--=")]).notes == ("is damaged (CloseBoundaryNotFoundDefect); text may be missing",)


def test_mailbox_emails_become_documents() -> None:
    raw = (
        b"From ada@example.org Mon Feb  5 10:00:00 2024\nSubject: One\n\nFirst mail\n>From the start\n\n"
        b"From bob@example.org Mon Feb  5 11:00:00 2024\nSubject: Two\n\nSecond mail\n"
    )
    documents = read(raw, ".mbox").documents
    assert [(document.key, document.title, document.text) for document in documents] == [
        ("1", "One", "First mail\nFrom the start"),
        ("2", "Two", "Second mail"),
    ]


def test_nested_emails_have_depth_limit() -> None:
    message = mail("Innermost")
    for _ in range(15):
        outer = mail("Outer")
        outer.add_attachment(message)
        message = outer
    parsed = parse_email(message.as_bytes(), lambda name, raw: ParsedFile([], ""))
    assert parsed.notes[0].startswith("has an attached file that cannot be read: email 1 is attached too deeply")


def test_text_without_email_header_refused() -> None:
    with pytest.raises(UnreadableFile, match="is not an email"):
        PARSERS[".eml"](b"\nOnly text.\n")
