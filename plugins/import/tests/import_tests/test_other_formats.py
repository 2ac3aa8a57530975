"""Files of formats that other plug-ins read, by entry points of the group taugate.importers."""

import json
from pathlib import Path

import pytest

from taugate.cli.main import main
from taugate_import import parse

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
