"""Emails as text: headers, forms of the text, attached files, mailboxes."""

from email.message import EmailMessage

import pytest

from import_tests.kept import complete
from taugate.data.parsed import ParsedFile, UnreadableFile
from taugate_import.email_message import parse_email
from taugate_import.parse import PARSERS


def mail(text: str, subject: str = "Seal of pump 7") -> EmailMessage:
    """Return an email with a text."""
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = subject, "Ada <ada@example.org>", "bob@example.org"
    message["Date"] = "Mon, 05 Feb 2024 10:00:00 +0100"
    message.set_content(text)
    return message


def read(raw: bytes, kind: str = ".eml") -> ParsedFile:
    """Return the parsed email, after a check that it keeps the words of the file."""
    return complete(PARSERS[kind](raw))


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


def message_of(content_type: str, body: bytes, encoding: str = "8bit", subject: str = "s") -> bytes:
    """Return the source of an email of one part."""
    head = f"Subject: {subject}\r\nContent-Type: {content_type}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n"
    return head.encode("latin-1") + body


def parts_of(kind: str, *parts: tuple[str, str]) -> bytes:
    """Return the source of an email of several parts, each with its headers after `Content-Type: `."""
    written = "".join(f"--{kind}\r\nContent-Type: {headers}\r\n\r\n{body}\r\n" for headers, body in parts)
    return f'Subject: s\r\nContent-Type: multipart/{kind}; boundary="{kind}"\r\n\r\n{written}--{kind}--\r\n'.encode()


JAPANESE = b"\x1b$B\x2d\x21\x7c\x62\x1b(B" + "の弁を閉じる".encode("iso2022_jp")


@pytest.mark.parametrize(
    ("label", "body", "text"),
    [
        ("iso-8859-1", b"it isn\x92t \x80 20", "it isn’t € 20"),
        ("us-ascii", b"it isn\x92t", "it isn’t"),
        ("us-ascii", "Größe".encode(), "Größe"),
        ("iso-8859-9", "it isn’t ğ".encode("cp1254"), "it isn’t ğ"),
        ("gb2312", "朱镕基".encode("gbk"), "朱镕基"),
        ("big5", b"\xa4\xf4\xff\xac\xa6", "水\ufffd泵"),
        ("x-unknown", "die Größe der Pumpe".encode("cp1252"), "die Größe der Pumpe"),
        ("utf-7", b"Gr+APYA3w-e", "Größe"),
        ("utf-16le", "Größe of it".encode("utf-16le"), "Größe of it"),
        ("iso-2022-jp", JAPANESE, "①髙の弁を閉じる"),
        ("us-ascii", JAPANESE, "①髙の弁を閉じる"),
        ("cp50221", JAPANESE + b"\x1b(I\x31\x1b(B", "①髙の弁を閉じるｱ"),
        ("iso-2022-jp", b"\x1b$B\x7f\x7f\x1b(B" + JAPANESE, "\ufffd\ufffd①髙の弁を閉じる"),
        (
            "iso-2022-jp",
            "の弁を閉じる。ポンプは二バールで始動する".encode("cp932"),
            "の弁を閉じる。ポンプは二バールで始動する",
        ),
    ],
)
def test_email_label_means_what_browsers_mean(label: str, body: bytes, text: str) -> None:
    assert read(message_of(f"text/plain; charset={label}", body)).documents[0].text == text


def test_letters_without_charset_are_guessed() -> None:
    assert (
        read(message_of("text/plain", "it isn’t die Größe".encode("cp1252"))).documents[0].text == "it isn’t die Größe"
    )


@pytest.mark.parametrize(
    ("subject", "title"),
    [
        ("=?iso-8859-1?Q?The_=93winter=94_offer?=", "The “winter” offer"),
        ("=?utf-8?B?5byB?= =?utf-8*de?Q?=C3=9F?= and =?koi8-r?B?1A==?=", "弁ß and т"),
        ("=?utf-8?Q?=E5=BC?=\r\n =?utf-8?Q?=81?=", "弁"),
        ("=?iso-2022-jp?B?GyRCLSEbKEI=?=", "①"),
        ("=?x-unknown?Q?Pump?= C:\\users", "Pump C:\\users"),
        ("Gr\u00f6\u00dfe", "Größe"),
    ],
)
def test_encoded_subject_follows_the_same_labels(subject: str, title: str) -> None:
    assert read(message_of("text/plain", b"text", subject=subject)).documents[0].title == title


def test_all_text_parts_are_read_in_order() -> None:
    page = "<html><head><style>p{margin:0}</style></head><p>R&amp;D</p></html>"
    image = ("image/png; name=a.png\r\nContent-ID: <a>", "x")
    mixed = parts_of("mixed", ("text/plain", "First"), ("text/html", page), image, ("text/html", "<p>Third</p>"))
    assert [document.text for document in read(mixed).documents] == ["First\n\nR&D\n\nThird"]


def test_longest_alternative_is_read_with_its_parts() -> None:
    inner = parts_of(
        "mixed", ("text/html", "<p>one of two</p>"), ("text/csv; name=t.csv", "a\n1"), ("text/html", "<p>b</p>")
    )
    kind, body = inner.decode().partition("Content-Type: ")[2].split("\r\n\r\n", 1)
    message = parts_of("alternative", ("text/plain", "one"), ("text/x-amp-html", "<p>one</p>"), (kind, body))
    assert [(document.key, document.text) for document in read(message).documents] == [
        ("", "one of two\n\nb"),
        ("t.csv/1", "a: 1"),
    ]


@pytest.mark.parametrize("more", ["", "\r\nContent-Disposition: attachment", "; name=page.html"])
def test_label_of_page_part_is_used(more: str) -> None:
    page = (f"text/html; charset=iso-2022-jp{more}", f"<meta charset=utf-8><p>{JAPANESE.decode('ascii')}</p>")
    text = "\n\n".join(document.text for document in read(parts_of("mixed", ("text/plain", "See"), page)).documents)
    assert text == "See\n\n①髙の弁を閉じる"


def test_text_that_is_binary_leaves_the_others() -> None:
    parsed = read(parts_of("mixed", ("text/plain", "Seal"), ("text/plain", "\0\1\2\3")))
    assert parsed.documents[0].text == "Seal" and parsed.notes == ("has a text that cannot be read: it is not text",)


@pytest.mark.parametrize(
    ("parameters", "body", "text"),
    [
        ("", "two \r\nbar", "two bar"),
        ("; delsp=yes", "ポン \r\nプ\r\nNext", "ポンプ\nNext"),
        ("; delsp=no", "> a \r\n> b\r\n>> c \r\nd", "> a b\n>> c \nd"),
        ("", " >From \r\nhere\r\n-- \r\nAda", ">From here\n-- \nAda"),
    ],
)
def test_flowed_lines_are_joined(parameters: str, body: str, text: str) -> None:
    kind = f"text/plain; charset=utf-8; format=flowed{parameters}"
    assert read(message_of(kind, body.encode())).documents[0].text == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"VGhlIHNl\r\nYWw=\r\n____\r\nThe list\r\n", "The seal____\nThe list"),
        (b"VGhlIHNlYWw", "The seal"),
        (b"VGhlIHNlY", "The se"),
        (b"No code at all.", "No code at all."),
    ],
)
def test_damaged_base64_is_read_as_far_as_possible(body: bytes, text: str) -> None:
    assert read(message_of("text/plain", body, "base64")).documents[0].text == text


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


def test_deeply_nested_attached_file_does_not_lose_mail() -> None:
    message = mail("See the file.")
    message.add_attachment(b"[" * 100_000, "application", "json", filename="deep.json")
    parsed = read(message.as_bytes())
    assert parsed.documents[0].text == "See the file."
    assert parsed.notes == ("has an attached file that cannot be read: deep.json is nested too deeply",)


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


def test_mailbox_line_of_text_begins_no_email() -> None:
    lines = (
        "From the pump at 10:30:\nNote: it leaks",
        "From Monday 10:30 on",
        "From bob@example.org at 10:30\nTo: all",
    )
    separators = ("From - Mon Feb 05 11:00:00 2024\nX-Mozilla: 1", "From 17@xxx Tue Feb 06 10:00:00 +0000 2024")
    first = "\n\n".join(lines)
    raw = f"From a@b.c Mon Feb  5 10:00:00 2024\nSubject: 0\n\n{first}\n\n"
    raw += "".join(
        f"{separator}\nSubject: {number}\n\nMail\n\n" for number, separator in enumerate(separators, start=1)
    )
    for end in ("\n", "\r\n"):
        documents = read(raw.replace("\n", end).encode(), ".mbox").documents
        assert [(document.title, document.text) for document in documents] == [
            ("0", first),
            ("1", "Mail"),
            ("2", "Mail"),
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
