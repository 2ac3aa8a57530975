"""The example of "Write a plug-in" works as the page has it, and plug-ins import only what the page declares public."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import taugate
from taugate import plugins
from taugate.cli import main as cli
from taugate.data.parsed import Parser, UnreadableFile
from tests.calibration.commands import arguments, small

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
PROJECT, MODULE = (match[1] for match in re.finditer(r"^```(?:toml|python)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
CONTACTS = "".join(
    f"BEGIN:VCARD\r\nFN:{name}\r\nORG;LANGUAGE=en:Engines\r\nNOTE:{note}\r\nEND:VCARD\r\n"
    for name, note in (("Ada", "Wrote the first program."), ("Ada", "Another one."))
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example as pip installs it: its module, and its entry points."""
    project = tomllib.loads(PROJECT)["project"]
    metadata = tmp_path / "site" / f"{project['name']}-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = project["entry-points"].items()
    points = (f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in own.items()) for group, own in groups)
    (metadata / "entry_points.txt").write_text("".join(points))
    (metadata.parent / "taugate_example.py").write_text(MODULE)
    monkeypatch.syspath_prepend(metadata.parent)
    yield
    sys.modules.pop("taugate_example", None)


def test_example_has_forty_lines() -> None:
    assert sum(bool(line.strip()) for line in MODULE.splitlines()) <= 40


def test_importer_of_example_reads_records(installed: None) -> None:
    parser: Parser = plugins.load_one("importers", "vcf")
    first, second = parser(CONTACTS.encode()).documents
    assert (first.title, first.text, first.metadata["company"]) == ("Ada", "Wrote the first program.", "Engines")
    assert first.key != second.key
    with pytest.raises(UnreadableFile, match="has no contact"):
        parser(b"%PDF-1.7")


def test_release_over_store_of_example_finds_the_same(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, encoder = small(tmp_path, 60)
    monkeypatch.setenv("TAUGATE_ENGINE_URL", str(tmp_path / "store"))
    for name, more in (("here", ()), ("there", ("--engine", "folder"))):
        options = ("--lexical", "off", "--refuse", "off", *more)
        assert cli.main(arguments(data, tmp_path / name, encoder, *options)) == 0
    here, there = taugate.open(tmp_path / "here"), taugate.open(tmp_path / "there")
    for query in ("word1 word2 word3", "word7"):
        found, expected = (
            [(hit.id, hit.score) for hit in each.search(query, k=3, min_results=3).results] for each in (there, here)
        )
        assert len(found) == 3
        assert found == expected


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each import of the core."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "taugate":
            yield from ((node.module, alias.name) for alias in node.names)


def test_plug_ins_import_public_names_only() -> None:
    files = sorted(ROOT.glob("plugins/*/src/**/*.py"))
    names = {(file.name, f"{module}.{name}") for file in files for module, name in imported(file)}
    assert len(names) > 100
    private = [name for name in names if any(part.startswith("_") for part in name[1].split("."))]
    commands = [name for name in names if re.match(r"taugate\.cli\.(?!terminal\.)", name[1])]
    assert (private, commands) == ([], [])


def test_declared_modules_exist_and_example_uses_no_other() -> None:
    section = PAGE.partition("## Names that you may import")[2].partition("\n\nA plug-in of this repository")[0]
    declared = re.findall(r"`(taugate\.[\w.]+)`", section)
    paths = [ROOT / "src" / module.replace(".", "/") for module in declared]
    assert [str(path) for path in paths if not path.is_dir() and not path.with_suffix(".py").is_file()] == []
    used = re.findall(r"^from (taugate\.\S+)", MODULE, re.MULTILINE)
    assert [module for module in used if not module.startswith(tuple(declared))] == []
