"""Write office files, web pages and mails full of numbers in the forms that lose something, by several programs each."""

import email.policy
import random
import subprocess
import sys
from collections.abc import Callable
from email.message import EmailMessage
from html import escape
from importlib import import_module
from pathlib import Path

from benchmarks.ingestion.office_writers import archive

Writer = Callable[[Path, random.Random], Path]
"""Writes a file into a folder, and returns its path."""

_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_FORMATS = {  # number formats, each with the range of its values
    "00000": (1, 9999),
    '0.00" bar"': (0.5, 40),
    "0%": (0, 1),
    "0.0%": (0, 1),
    "[h]:mm": (0, 4),
    '"P-"000': (1, 99),
    "#,##0.00": (900, 90000),
    "yyyy\\-mm\\-dd": (40000, 47000),
    "dd\\.mm\\.yyyy": (40000, 47000),
    "0.00E+00": (1000, 9e6),
    '0;-0;"sold out"': (-3, 3),
    "General": (0, 100),
}


def sentences(rng: random.Random) -> list[list[tuple[str, bool]]]:
    """Return paragraphs, each as pieces of text, with whether a piece is superscript."""
    n = rng.randint
    drawn = [
        [
            (f"The seal lasts {n(10, 99)}", False),
            (f"{n(3, 9)}", True),
            (f" cycles at {n(1, 9)}.{n(1, 9)}0 bar.", False),
        ],
        [(f"Article {n(1, 999):05}, batch P-{n(1, 99):03}, version {n(1, 9)}.{n(1, 9)}0.", False)],
        [
            ("Leak: 10", False),
            (f"-{n(2, 9)}", True),
            (f" bar over {n(2, 99)} m", False),
            ("2", True),
            (" a day.", False),
        ],
        [(f"On {n(1, 28):02}.{n(1, 12):02}.20{n(10, 30)} at {n(0, 23):02}:{n(0, 59):02}, {n(1, 99)} %.", False)],
        [
            ("See the table of torques", False),
            (f"{n(10, 99)}", True),
            (f" and {n(1, 9)},{n(100, 999)}.50 pumps.", False),
        ],
        [
            (f"Total of {n(1000, 9999)}: {n(1, 9)}/{n(10, 99)}, CO2, the {n(4, 20)}", False),
            ("th", True),
            (" time.", False),
        ],
    ]
    return rng.sample(drawn, n(3, len(drawn)))


def _cells(rng: random.Random) -> list[tuple[str, list[float]]]:
    formats = rng.sample([*_FORMATS], 5)
    return [(code, [round(rng.uniform(*_FORMATS[code]), rng.choice([0, 1, 2])) for _ in range(6)]) for code in formats]


def sheet_by_hand(folder: Path, rng: random.Random) -> Path:
    """Write a spreadsheet as XML."""
    columns = _cells(rng)
    header = "".join(f'<c t="inlineStr"><is><t>{name}</t></is></c>' for name in ("part", "a", "b", "c", "d", "e"))
    rows = "".join(
        f'<row><c t="inlineStr"><is><t>seal {row:03}</t></is></c>'
        + "".join(f'<c s="{number}"><v>{values[row]!r}</v></c>' for number, (_, values) in enumerate(columns, start=1))
        + "</row>"
        for row in range(6)
    )
    formats = "".join(
        f'<numFmt numFmtId="{200 + n}" formatCode="{escape(code)}"/>' for n, (code, _) in enumerate(columns)
    )
    styles = "".join(
        f'<xf numFmtId="{200 + n}" fontId="0" fillId="0" borderId="0" applyNumberFormat="1"/>'
        for n in range(len(columns))
    )
    plain = '<xf numFmtId="0" fontId="0" fillId="0" borderId="0"/>'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" ContentType="application/'
        'vnd.openxmlformats-package.relationships+xml"/>'
        + "".join(
            f'<Override PartName="/xl/{name}.xml" ContentType="application/vnd.openxmlformats-officedocument.'
            f'spreadsheetml.{kind}+xml"/>'
            for name, kind in (("workbook", "sheet.main"), ("worksheets/sheet1", "worksheet"), ("styles", "styles"))
        )
        + "</Types>",
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r" Type="{_RELATIONS}/'
        'officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="a" '
        f'Type="{_RELATIONS}/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="b" Type="{_RELATIONS}/styles" '
        'Target="styles.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_SHEET}" xmlns:r="{_RELATIONS}"><sheets><sheet name="Parts" sheetId="1" '
        'r:id="a"/></sheets></workbook>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_SHEET}"><sheetData><row>{header}</row>{rows}</sheetData>'
        "</worksheet>",
        "xl/styles.xml": f'<styleSheet xmlns="{_SHEET}"><numFmts>{formats}</numFmts><fonts count="1"><font/></fonts><fills '
        'count="1"><fill/></fills><borders count="1"><border/></borders>'
        f"<cellStyleXfs>{plain}</cellStyleXfs><cellXfs>{plain}{styles}</cellXfs></styleSheet>",
    }
    return _written(folder / f"sheet{rng.getrandbits(32):08x}.xlsx", archive(parts))


def word_by_hand(folder: Path, rng: random.Random) -> Path:
    """Write a Word file as XML."""
    raised = '<w:rPr><w:vertAlign w:val="superscript"/></w:rPr>'
    body = "".join(
        "<w:p>"
        + "".join(
            f'<w:r>{raised * is_raised}<w:t xml:space="preserve">{text}</w:t></w:r>' for text, is_raised in pieces
        )
        + "</w:p>"
        for pieces in sentences(rng)
    )
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" ContentType="application/'
        'vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml" ContentType="application/'
        'vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r" Type="{_RELATIONS}/'
        'officeDocument" Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>',
    }
    return _written(folder / f"text{rng.getrandbits(32):08x}.docx", archive(parts))


def sheet_by_openpyxl(folder: Path, rng: random.Random) -> Path:
    """Write a spreadsheet with openpyxl."""
    book = import_module("openpyxl").Workbook()
    sheet = book.active
    sheet.append(["part", "a", "b", "c", "d", "e"])
    columns = _cells(rng)
    for row in range(6):
        sheet.append([f"seal {row:03}", *(values[row] for _, values in columns)])
        for number, (code, _) in enumerate(columns, start=2):
            sheet.cell(row + 2, number).number_format = code
    path = folder / f"openpyxl{rng.getrandbits(32):08x}.xlsx"
    book.save(path)
    return path


def word_by_python_docx(folder: Path, rng: random.Random) -> Path:
    """Write a Word file with python-docx."""
    document = import_module("docx").Document()
    document.add_heading("Seals", 1)
    for pieces in sentences(rng):
        paragraph = document.add_paragraph()
        for text, is_raised in pieces:
            paragraph.add_run(text).font.superscript = is_raised or None
    path = folder / f"docx{rng.getrandbits(32):08x}.docx"
    document.save(path)
    return path


def by_libre_office(paths: list[Path], kind: str, folder: Path) -> list[Path]:
    """Let LibreOffice save files in another format, all in one process.

    Args:
        paths: Files that it can open.
        kind: Suffix of the format without its dot.
        folder: An empty folder for the new files.
    """
    profile = f"-env:UserInstallation={(folder / 'profile').as_uri()}"
    command = ["soffice", profile, "--headless", "--convert-to", kind, "--outdir", str(folder), *map(str, paths)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return [folder / f"{path.stem}.{kind.partition(':')[0]}" for path in paths]


def _html(rng: random.Random) -> str:
    lines = (
        "".join(f"<sup>{escape(text)}</sup>" if is_raised else escape(text) for text, is_raised in pieces)
        for pieces in sentences(rng)
    )
    cells = "".join(f"<tr><td>{rng.randint(1, 99):04}</td><td>{rng.randint(1, 99)}.50</td></tr>" for _ in range(3))
    return "".join(f"<p>{line}</p>" for line in lines) + f"<table>{cells}</table>"


def page_by_hand(folder: Path, rng: random.Random) -> Path:
    """Write a web page as HTML."""
    page = f"<!doctype html><meta charset=utf-8><title>Seals</title><body><main><h1>Seals</h1>{_html(rng)}</main>"
    return _written(folder / f"page{rng.getrandbits(32):08x}.html", page.encode())


def _markdown(rng: random.Random) -> str:
    lines = ("".join(f"^{text}^" if is_raised else text for text, is_raised in pieces) for pieces in sentences(rng))
    note = f"\n\nSee the note.[^1]\n\n[^1]: {rng.randint(1, 99)}.{rng.randint(1, 9)}0 bar.\n"
    return "# Seals\n\n" + "\n\n".join(lines) + note


def page_by_pandoc(folder: Path, rng: random.Random) -> Path:
    """Let pandoc make a web page of Markdown."""
    path = folder / f"pandoc{rng.getrandbits(32):08x}.html"
    command = ["pandoc", "--from", "markdown", "--standalone", "--metadata", "title=Seals", "-o", str(path)]
    subprocess.run(command, input=_markdown(rng).encode(), check=True, timeout=60)
    return path


def page_by_sphinx(folder: Path, rng: random.Random) -> Path:
    """Let Sphinx make a page of reStructuredText."""
    name = f"sphinx{rng.getrandbits(32):08x}"
    source = folder / name
    source.mkdir()
    (source / "conf.py").write_text("html_theme = 'basic'\n")
    lines = (
        "".join(f"\\ :sup:`{text}`\\ " if is_raised else text for text, is_raised in pieces)
        for pieces in sentences(rng)
    )
    (source / "index.rst").write_text("Seals\n=====\n\n" + "\n\n".join(lines) + "\n")
    command = [sys.executable, "-m", "sphinx", "-q", str(source), str(source / "out")]
    subprocess.run(command, check=True, timeout=120)
    return (source / "out" / "index.html").rename(folder / f"{name}.html")


def _text(rng: random.Random) -> str:
    return "\n\n".join("".join(f"^{text}" if is_raised else text for text, is_raised in p) for p in sentences(rng))


def mail_by_package(folder: Path, rng: random.Random) -> Path:
    """Write a mail of plain text with Python's package email."""
    message = EmailMessage()
    message["Subject"], message["From"] = f"Seal {rng.randint(1, 99):04}", "Ada <ada@example.org>"
    message.set_content(_text(rng), cte=rng.choice(["quoted-printable", "base64", "7bit"]))
    return _written(folder / f"package{rng.getrandbits(32):08x}.eml", message.as_bytes())


def mail_like_mutt(folder: Path, rng: random.Random) -> Path:
    """Write a mail of flowed text, as mutt does, with quoted lines and a signature."""
    flowed = "\n".join(
        line if not line else f"{line.replace(' at ', ' at ' + chr(10), 1)}" for line in _text(rng).split("\n")
    )
    raw = (
        f"Date: Mon, 5 Feb 2024 10:{rng.randint(10, 59)}:00 +0100\nFrom: Bob <bob@example.org>\nSubject: =?iso-8859-1?Q?"
        f"Gr=F6=DFe_{rng.randint(1, 99):03}?=\nMIME-Version: 1.0\nContent-Type: text/plain; charset=us-ascii; "
        f"format=flowed\n\n{flowed}\n\n> From {rng.randint(1, 99):03} to {rng.randint(1, 9)}.50 bar\n\n-- \nBob, room "
        f"{rng.randint(1, 99):03}\n"
    )
    return _written(folder / f"mutt{rng.getrandbits(32):08x}.eml", raw.encode())


def mail_of_webmail(folder: Path, rng: random.Random) -> Path:
    """Write a mail in two forms, as a webmail does, of which the HTML says more."""
    message = EmailMessage(policy=email.policy.SMTP)
    message["Subject"], message["From"] = f"Seal {rng.randint(1, 99):04}", "Eve <eve@example.org>"
    message.set_content("Open this in a browser.")
    message.add_alternative(f"<div dir=ltr>{_html(rng)}</div>", subtype="html")
    return _written(folder / f"webmail{rng.getrandbits(32):08x}.eml", message.as_bytes())


def _written(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path
