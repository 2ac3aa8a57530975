"""Words with a digit that LibreOffice or Chromium shows of a file, and that its documents lack without being named."""

import argparse
import email
import email.policy
import json
import random
import re
import shutil
from collections.abc import Iterable, Sequence
from html import unescape
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.ingestion import numbered_files as files
from benchmarks.ingestion.plan import ImportPlan
from benchmarks.markdown import Target, table, targets
from taugate_import.parse import read_file

HEADING = "Numbers as other programs show them"

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_APART = (
    "document.querySelectorAll('sup').forEach(e => { if (/\\d/.test(e.innerText)) { e.before(' '); e.after(' ') } })"
)
_SUP = re.compile(r"(?i)<sup>((?:(?!</sup>).)*\d(?:(?!</sup>).)*)</sup>")
_LEFT_OUT = "document.querySelectorAll('nav, header, footer, [role=navigation], .footer').forEach(e => e.remove())"
_WORD = re.compile(r"[^\W_]+(?:[.,:][^\W_]+)*")


def section(plan: ImportPlan) -> str:
    """Write the files, read them by other programs and by the importer, and return the table."""
    rng = random.Random(plan.seed)  # noqa: S311 (no secret is made of it)
    count = plan.shown_files
    rows, unnamed = [], 0
    for kind, made in {"office": office_files, "pages": pages, "mails": mails}.items():
        shown = made(plan.work / kind, rng, count)
        lost = {path: missing(path, text) for path, text in shown.items()}
        unnamed += sum(map(len, lost.values()))
        programs = sorted({re.sub(r"[0-9a-f]{8}$", "", path.stem) + path.suffix for path in shown})
        tokens = sum(len(words_with_digit(text)) for text in shown.values())
        rows.append([kind, ", ".join(programs), len(shown), tokens, sum(map(len, lost.values()))])
    return (
        "Office files are read by LibreOffice, web pages and the HTML of mails by Chromium. Digits that a program shows "
        f"raised are words of their own.\n\n{targets([Target('words lost and not named', unnamed, at_most=0)])}\n\n"
        f"{table(['kind', 'made as', 'files', 'words with a digit', 'lost and not named'], rows)}\n"
    )


def office_files(
    folder: Path, rng: random.Random, count: int, writers: Sequence[files.Writer] | None = None
) -> dict[Path, str]:
    """Return office files with the text that LibreOffice shows of each.

    Args:
        folder: A new folder.
        rng: Draws their content.
        count: Number of files by each program.
        writers: Programs besides LibreOffice, all if None.
    """
    folder.mkdir(parents=True)
    if writers is None:
        writers = [files.sheet_by_hand, files.word_by_hand, files.sheet_by_openpyxl, files.word_by_python_docx]
    written = [writers[number % len(writers)](folder, rng) for number in range(count * max(len(writers) // 2, 1))]
    sheets, texts = ([path for path in written if path.suffix == suffix] for suffix in (".xlsx", ".docx"))
    share = max(count // 4, 1)
    for kind, originals in {"ods": sheets, "odt": texts, "xlsx": sheets, "docx": texts}.items():
        if len(writers) > 2 and originals:
            written += files.by_libre_office(originals[:share], kind, _new(folder / f"saved-{kind}"))
    names = {path: f"{number}{path.suffix}" for number, path in enumerate(written)}
    copies = _new(folder / "copies")
    for path, name in names.items():
        (copies / name).write_bytes(path.read_bytes())
    pages = _new(folder / "pages")
    by_kind = {suffix: [copies / name for path, name in names.items() if path.suffix == suffix] for suffix in _SUFFIXES}
    files.by_libre_office([path for paths in by_kind.values() for path in paths], "html", pages)
    return {
        path: _text_of_page((pages / Path(name).with_suffix(".html")).read_text("utf-8"))
        for path, name in names.items()
    }


_SUFFIXES = (".xlsx", ".ods", ".docx", ".odt")


def pages(
    folder: Path, rng: random.Random, count: int, writers: Sequence[files.Writer] | None = None
) -> dict[Path, str]:
    """Return web pages with the text that Chromium shows of each; the parameters are those of `office_files`."""
    folder.mkdir(parents=True)
    writers = writers or [files.page_by_hand, files.page_by_pandoc, files.page_by_sphinx]
    written = [write(folder, rng) for write in writers for _ in range(count)]
    return dict(zip(written, _shown_by_chromium(path.as_uri() for path in written), strict=True))


def mails(folder: Path, rng: random.Random, count: int) -> dict[Path, str]:
    """Return mails with their plain text, or the text that Chromium shows of their HTML."""
    folder.mkdir(parents=True)
    writers = [files.mail_by_package, files.mail_like_mutt, files.mail_of_webmail]
    written = [write(folder, rng) for write in writers for _ in range(count)]
    plain: dict[Path, str] = {}
    rich: dict[Path, str] = {}
    for path in written:
        message = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
        body = message.get_body(("html", "plain"))
        if body is not None:
            forms = rich if body.get_content_subtype() == "html" else plain
            forms[path] = f"{message['subject']}\n{body.get_content()}"
    sources = {path: folder / f"{path.stem}.html" for path in rich}
    for path, source in sources.items():
        source.write_text(f"<meta charset=utf-8>{rich[path]}", "utf-8")
    return plain | dict(zip(rich, _shown_by_chromium(source.as_uri() for source in sources.values()), strict=True))


def missing(path: Path, shown: str) -> set[str]:
    """Return the words with a digit that another program shows of a file, and the importer neither keeps nor names."""
    content = read_file(path)
    metadata = [str(value) for document in content.documents for value in document.metadata.values()]
    texts = [text for document in content.documents for text in (document.key, document.title, document.text)]
    return words_with_digit(shown) - words_with_digit("\n".join([*texts, *metadata])) - {*content.lost_numbers}


def words_with_digit(text: str) -> set[str]:
    """Return the words of a text that have a digit."""
    apart = _RAISED.sub(r" \g<0> ", text).translate(_DIGITS)
    return {word for word in _WORD.findall(apart) if re.search(r"\d", word)}


def _text_of_page(page: str) -> str:
    """Return the text of a page of LibreOffice, whose superscripts are elements."""
    body = re.sub(r"(?is)^.*?<body[^>]*>|<style.*?</style>|<!--.*?-->", " ", page)
    glued = re.sub(r"(?i)</?(?:font|span|b|i|u|a|sup)\b[^>]*>", "", _SUP.sub(r" \1 ", re.sub(r"\s+", " ", body)))
    return unescape(re.sub(r"<[^>]*>", " ", glued)).replace("\xa0", " ")


def _shown_by_chromium(addresses: Iterable[str]) -> list[str]:
    texts = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=next(filter(None, map(shutil.which, _CHROMIUM))), args=["--no-sandbox"]
        )
        page = browser.new_page()
        for address in addresses:
            page.goto(address)
            page.evaluate(_APART)
            page.evaluate(_LEFT_OUT)
            texts.append(str(page.inner_text("body")))
        browser.close()
    return texts


def _new(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def main() -> None:
    """Print the words of a few files by hand that are lost and not named, as JSON: for the tests."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("kind", choices=["office", "pages"])
    parser.add_argument("folder", type=Path, help="a new folder")
    arguments = parser.parse_args()
    rng = random.Random(1)  # noqa: S311 (no secret is made of it)
    if arguments.kind == "office":
        shown = office_files(arguments.folder, rng, 6, [files.sheet_by_hand, files.word_by_hand])
    else:
        shown = pages(arguments.folder, rng, 3, [files.page_by_hand]) | mails(arguments.folder / "mails", rng, 3)
    lost = {path.name: sorted(missing(path, text)) for path, text in shown.items()}
    print(json.dumps({"words": [len(words_with_digit(text)) for text in shown.values()], "lost": lost}))


if __name__ == "__main__":
    main()
