"""Plain text in encodings in use: decoded exactly, with a note on the guess."""

import json
import random
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from taugate.cli.main import main
from taugate.data.parsed import UnreadableFile
from taugate_import import parse
from taugate_import.html import parse_html
from taugate_import.json_documents import parse_json
from taugate_import.markdown import parse_markdown, parse_markdown_file
from taugate_import.plain_text import decode_text, parse_plain_text
from taugate_import.word_share import lost_numbers, share_kept

FINNISH = (
    "Pumppu käynnistyy, kun paine laskee alle kahden baarin.\nSoita päivystäjälle illalla, jos varoitusvalo palaa."
)
SPANISH = "La bomba arranca cuando la presión baja de dos bares.\nCambie la junta cada treinta días, también en otoño."
POLISH = "Pompa włącza się, gdy ciśnienie spada poniżej dwóch barów.\nZawór należy zamknąć przed zimą."
RUSSIAN = "Насос включается, когда давление падает ниже двух бар.\nПозвоните дежурному вечером."
JAPANESE = "圧力が二バールを下回るとポンプが始動します。\n秋の前に弁を閉じてください。"
CHINESE = "当压力低于两巴时,水泵启动。\n秋天之前请关闭阀门。"
KOREAN = "압력이 두 바 아래로 떨어지면 펌프가 작동합니다.\n가을 전에 밸브를 잠그십시오."
GREEK = "Η αντλία ξεκινά όταν η πίεση πέσει κάτω από δύο μπαρ.\nΚλείστε τη βαλβίδα πριν από το φθινόπωρο."


@pytest.mark.parametrize(
    ("text", "encoding", "name"),
    [
        (FINNISH, "cp1252", "windows-1252"),
        (SPANISH, "cp1252", "windows-1252"),
        ("The pump’s price is “5 €” – and that’s all.", "cp1252", "windows-1252"),
        ("Le café coûte 5 €, où est le garçon ?", "iso8859-15", "iso-8859-15"),
        ("A room at 20 °C", "cp1252", "windows-1252"),
        (FINNISH, "cp850", "ibm437"),
        (SPANISH, "mac-roman", "macintosh"),
        (POLISH, "cp1250", "windows-1250"),
        (POLISH, "iso8859-2", "iso-8859-2"),
        (POLISH, "cp852", "ibm852"),
        (RUSSIAN, "cp1251", "windows-1251"),
        (RUSSIAN, "koi8-r", "koi8-r"),
        (RUSSIAN, "cp866", "ibm866"),
        (RUSSIAN, "iso8859-5", "iso-8859-5"),
        (GREEK, "cp1253", "windows-1253"),
        (JAPANESE, "cp932", "shift_jis"),
        (JAPANESE, "euc_jp", "euc-jp"),
        (JAPANESE, "iso2022_jp", "iso-2022-jp"),
        (CHINESE, "gb18030", "gb18030"),
        (KOREAN, "cp949", "euc-kr"),
        (KOREAN, "iso2022_kr", "iso-2022-kr"),
        (FINNISH, "utf-16-le", "utf-16le"),
        (RUSSIAN, "utf-16-be", "utf-16be"),
        (JAPANESE, "utf-32-le", "utf-32le"),
    ],
)
def test_legacy_encoding_decoded_and_noted(text: str, encoding: str, name: str) -> None:
    decoded = decode_text(text.encode(encoding))
    assert decoded.text == text and decoded.notes == (f"is read as {name}",)


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_marked_encoding_gives_no_note(encoding: str) -> None:
    text = "The pump starts." if encoding == "ascii" else FINNISH
    decoded = decode_text(text.encode(encoding))
    assert decoded.text == text and decoded.notes == ()


def test_utf8_with_few_invalid_bytes_is_utf8() -> None:
    decoded = decode_text(f"{FINNISH}\n{SPANISH}".encode() + b"\nM\xfcller sagt \x93ja\x94. \xe2\x82")
    assert decoded.text == f"{FINNISH}\n{SPANISH}\nMüller sagt “ja”. \ufffd"
    assert decoded.notes == ("is read as utf-8, and invalid bytes as windows-1252",)


def test_late_byte_decides_the_encoding() -> None:
    text = "The pump starts.\n" * 40_000 + FINNISH
    assert decode_text(text.encode("cp1252")).text == text


@pytest.mark.parametrize("raw", [bytes(range(256)) * 20, b"\x7fELF" + bytes(300), b"PK\x03\x04" + bytes(range(40)) * 9])
def test_binary_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(UnreadableFile, match="is not text"):
        decode_text(raw)


def test_damaged_texts_lose_no_words() -> None:
    sources = [FINNISH.encode("cp1252"), RUSSIAN.encode("koi8-r"), JAPANESE.encode("cp932"), POLISH.encode()]
    for seed in range(200):
        rng = random.Random(seed)  # noqa: S311 (no secret is made of it)
        raw = bytearray(b"\n\n".join([rng.choice(sources)] * 3))
        for _ in range(rng.randrange(1, 8)):
            raw[rng.randrange(len(raw))] = rng.randrange(32, 256)
        decoded = decode_text(bytes(raw[: rng.randrange(len(raw) // 2, len(raw))]))
        assert share_kept(decoded.text, [parse_plain_text(decoded.text)]) == 1


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ('See [it][x].\n\n[x]: http://a.b "The words"\n', 'See [it][x].\n\n[x]: http://a.b "The words"'),
        ("Text[^1].\n\n[^1]: word\n", "Text[^1].\n\n[^1]: word"),
        ("<details><summary>How?</summary>\n\nSo **it** is.\n\n</details>\n", "How?\n\nSo **it** is."),
        ("<T>\n\n<your name>\n", "<T>\n\n<your name>"),
        ("<img src=a alt='A pump'>\n", "A pump"),
        ("a\n\n<!-- left out -->\n\nb\n", "a\n\nb"),
        ("a\n\n<!-- never closed\n\nwords\n", "a\n\nnever closed words"),
        ("<table><tr><td>a</td><td>b</td></tr></table>\n", "|  |  |\n| --- | --- |\n| a | b |"),
        ('<TabItem label="Linux">\n\napt\n', '<TabItem label="Linux">\n\napt'),
        ("- item\n\n    ```html\n    <p>code</p>\n    ```\n", "- item\n\n    ```html\n    <p>code</p>\n    ```"),
        ("!!! note\n    Indented\n", "!!! note\n    Indented"),
    ],
)
def test_markdown_words_are_kept(source: str, text: str) -> None:
    file = parse_markdown_file(source)
    assert file.documents[0].text == text and share_kept(file.source_text, file.documents, file.left_out) == 1
    assert not lost_numbers(file.source_text, file.documents, file.left_out)


def test_converted_markdown_has_no_front_matter() -> None:
    assert parse_markdown("---\n\na: b\n\n---\n\n<T>\n", converted=True).text == "a: b\n\n<T>"


@pytest.mark.parametrize(
    "front_matter",
    [
        "---\ntitle: Pump\ndate: 2024-01-02T10:00:00Z\ndescription: How it starts\nproducts: [p1, p2]\nweight: 10\n"
        "seo:\n  title: Deep words\ntags: [a, b]\n---\n",
        '+++\ntitle = "Pump"\ndate = 2024-01-02\ndescription = "How it starts"\nproducts = ["p1", "p2"]\nweight = 10\n'
        'tags = ["a", "b"]\n[seo]\ntitle = "Deep words"\n+++\n',
    ],
)
def test_front_matter_fields_are_kept(front_matter: str) -> None:
    file = parse_markdown_file(f"{front_matter}Text.\n")
    (document,) = file.documents
    assert document.title == "Pump" and document.text.startswith("How it starts\n\n") and "Deep words" in document.text
    assert document.text.endswith("\n\nText.") and share_kept(file.source_text, file.documents, file.left_out) == 1
    assert not lost_numbers(file.source_text, file.documents, file.left_out)
    assert document.metadata == {"created": "2024-01-02", "tags": ["a", "b"], "products": ["p1", "p2"], "weight": 10}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *((text, text) for text in ("1.10", "NO", "on", "007123", "12:30", "0x1F", "1_000", "1e5", "+5", ".5")),
        *((text, text) for text in ("2024-05-01", "2024-05-01T10:00:00Z", "12345678901234567890", "0.00001")),
        *(("true", True), ("false", False), ("-3", -3), ("2.5", 2.5), ("0", 0)),
    ],
)
def test_front_matter_values_stay_as_written(written: str, value: object) -> None:
    file = parse_markdown_file(f"---\nvalue: {written}\ntags: [{written}, b]\n---\nText.\n")
    assert file.documents[0].metadata == {"value": value, "tags": [written, "b"]}
    assert share_kept(file.source_text, file.documents) == 1


@pytest.mark.slow
def test_damaged_markdown_reports_lost_words() -> None:
    numbers = (f"w{number:04}" for number in range(10_000))
    paragraph = "## {} {}\n\n{} *{}* [{}](http://a.b) {}\n\n- {}\n- {}\n\n<b>{}</b> `{}`\n\n<div>{}</div>\n\n"
    source = "".join(paragraph.format(*(next(numbers) for _ in range(11))) for _ in range(20))
    insertions = [
        "<!-- ",
        "```\n",
        "\n---\n",
        "\n<div>\n",
        "\n<script>\n",
        "\n[a]: <",
        '\n<T x="\n',
        "\n<pre>\n",
        "\n<?\n",
    ]
    silent = []
    for seed in range(200):
        rng = random.Random(seed)  # noqa: S311 (no secret is made of it)
        at = rng.randrange(len(source))
        damaged = rng.choice([
            source[:at],
            source[:at] + source[at + rng.randrange(1, 200) :],
            source[:at] + rng.choice(insertions) + source[at:],
        ])  # fmt: skip
        file = parse_markdown_file(damaged)
        there = set(re.findall(r"w\d{4}", damaged))
        lost = there - set(re.findall(r"w\d{4}", file.documents[0].text))
        if len(lost) > 0.02 * len(there) and share_kept(file.source_text, file.documents, file.left_out) >= 0.98:
            silent.append((seed, len(lost)))
    assert silent == []


@pytest.mark.parametrize(
    ("front_matter", "tags"),
    [
        ("tags: [pump, seal, pump]", ["pump", "seal"]),
        ("tags:\n  - pump\n  - 2024\n  - true\n  - {a: b}", ["pump", "2024", "true"]),
        ("tags: pump, seal ; two  words", ["pump", "seal", "two words"]),
        ("keywords: [a]", ["a"]),
        ("keywords: [a]\ntags: [b]", ["b"]),
        ("tags: []\ncategories: [c]", ["c"]),
        ("tags: ''", None),
        ("tags: 3", None),
        ("title: none", None),
    ],
)
def test_front_matter_tags_are_read(front_matter: str, tags: list[str] | None) -> None:
    assert parse_markdown(f"---\n{front_matter}\n---\ntext").metadata.get("tags") == tags


def test_page_keywords_become_tags() -> None:
    page = (
        b"<head><meta name=Keywords content='pump, seal'><meta property=article:tag content=valve>"
        b"<meta property=article:tag content=pump></head><body><p>text</p>"
    )
    (document,) = parse_html(page).documents
    assert document.metadata["tags"] == ["pump", "seal", "valve"]
    (document,) = parse_html(b"<meta name=keywords content=' , '><p>text</p>").documents
    assert "tags" not in document.metadata


@pytest.mark.parametrize(
    ("value", "kept"),
    [(["a", "b", "a"], ["a", "b"]), (["a", 1], None), ([], None), ([""], None), ([["a"]], None), ({"a": 1}, None)],
)
def test_record_lists_become_tags(value: Any, kept: list[str] | None) -> None:
    (document,) = parse_json(orjson.dumps([{"text": "x", "tags": value}])).documents
    assert document.metadata.get("tags") == kept


def test_textless_record_shows_its_tags() -> None:
    (document,) = parse_json(b'[{"name": "valve", "tags": ["a", "b"]}]').documents
    assert document.text == "name: valve\ntags: a, b"


PARSER = """
from taugate.data.parsed import ParsedFile, TextBuilder, UnreadableFile

def parse_calendar(content):
    names = [line[8:] for line in content.decode().splitlines() if line.startswith("SUMMARY:")]
    if not names:
        raise UnreadableFile("holds no event")
    text = TextBuilder()
    for name in names:
        text.add(name, "prose")
    return ParsedFile([text.document("Calendar")], "\\n".join(names))
"""
MODULES = {
    "calendars": PARSER,
    "upper": PARSER.replace("line[8:]", "line[8:].upper()"),
    "broken": "raise RuntimeError('no such year')",
    "lacking": "import a_package_of_nobody",
    "foreign": "def parse_calendar(content): return [content.decode()]",
}


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a plug-in whose entry points are lines such as `ics = calendars:parse_calendar`."""

    def install(*lines: str) -> None:
        record = tmp_path / "site" / "taugate_calendars-1.0.dist-info"
        record.mkdir(parents=True)
        (record / "METADATA").write_text("Metadata-Version: 2.1\nName: taugate-calendars\nVersion: 1.0\n")
        (record / "entry_points.txt").write_text("\n".join(["[taugate.importers]", *lines]))
        for name, text in MODULES.items():
            (tmp_path / "site" / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path / "site")
        parse._of_plugins.cache_clear()

    yield install
    parse._of_plugins.cache_clear()


def imported(folder: Path, capsys: pytest.CaptureFixture[str], **files: str) -> tuple[dict[str, str], dict[str, str]]:
    """Import files by name and text; returns the text of each document and the reason for each skipped file."""
    source = folder / "files"
    source.mkdir()
    for name, text in files.items():
        (source / name.replace("_", ".")).write_text(text)
    assert (
        main(["import", str(source), "--to", str(folder / "data"), "--chunks", "off", "--overlap", "0", "--json"]) == 0
    )
    skipped = {Path(file["path"]).name: file["reason"] for file in json.loads(capsys.readouterr().out)["skipped"]}
    lines = map(json.loads, (folder / "data" / "corpus.jsonl").read_text().splitlines())
    return {line["_id"]: line["text"] for line in lines}, skipped


def test_entry_points_read_further_formats(tmp_path: Path, plugin, capsys: pytest.CaptureFixture[str]) -> None:
    plugin("ics = calendars:parse_calendar", "md = upper:parse_calendar")
    event = "BEGIN:VEVENT\nSUMMARY:The pump is replaced\nEND:VEVENT\n"
    texts, skipped = imported(tmp_path, capsys, a_ics=event, empty_ics="BEGIN:VCALENDAR", b_txt="Text", c_md=event)
    assert texts == {"a.ics": "The pump is replaced", "b.txt": "Text", "c.md": "THE PUMP IS REPLACED"}
    assert skipped == {"empty.ics": "holds no event"}


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("broken", "cannot be read: the plug-in taugate-calendars cannot be imported: no such year; install it again"),
        ("lacking", "cannot be read: a_package_of_nobody is not installed, which taugate-calendars needs"),
        ("foreign", "cannot be read: its plug-in returned something other than a ParsedFile"),
    ],
)
def test_faulty_plugin_is_named_and_stops_nothing(
    tmp_path: Path, plugin, module: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin(f"ics = {module}:parse_calendar")
    texts, skipped = imported(tmp_path, capsys, a_ics="SUMMARY:Pump", b_txt="Text")
    assert texts == {"b.txt": "Text"}
    assert skipped["a.ics"].startswith(reason)
