"""Newer versions of a data set, and `taugate update` as a test runs it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taugate.cli import main as cli
from taugate.registry.catalog import current_id

Record = dict[str, Any]


def documents_of(data: Path) -> list[Record]:
    return [json.loads(line) for line in (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]


def newer(data: Path, folder: Path, change: Callable[[list[Record]], list[Record]]) -> Path:
    """A copy of a data set whose documents are what `change` makes of them; queries and qrels stay."""
    shutil.copytree(data, folder)
    lines = [json.dumps(record, ensure_ascii=False) for record in change(documents_of(data))]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def mixed_changes(documents: list[Record]) -> list[Record]:
    """Of a hundred documents one is changed, one moves to the end and one is added in between."""
    changed = [
        record | {"text": f"{record['text']} Corrected."} if row % 100 == 7 else record
        for row, record in enumerate(documents)
    ]
    stay = [record for row, record in enumerate(changed) if row % 100 != 50]
    moved = [record for row, record in enumerate(changed) if row % 100 == 50]
    added = [{"_id": f"new-{row}", "text": f"Addition {row}: works on the Ebro bridge"} for row in range(5)]
    return [*stay[:40], *added, *stay[40:], *moved]


def garbled(documents: list[Record]) -> list[Record]:
    """A third of the documents no longer say what they said."""
    return [
        record | {"text": f"nothing to see here {row}", "title": ""} if row % 3 == 0 else record
        for row, record in enumerate(documents)
    ]


def manifest_of(releases: Path, name: str | None = None) -> Record:
    manifest: Record = json.loads((releases / (name or str(current_id(releases))) / "manifest.json").read_bytes())
    return manifest


def files_of(manifest: Record) -> dict[str, str]:
    """The digest of each file but the report, which says what is compared with what."""
    return {name: record["sha256"] for name, record in manifest["files"].items() if name != "report.html"}


class Updating:
    """`taugate update`: exit code, what --json prints, and stderr."""

    def __init__(self, capfd: Any) -> None:
        self.capfd = capfd

    def __call__(self, data: Path, releases: Path, *more: str) -> tuple[int, Record, str]:
        self.capfd.readouterr()
        code = cli.main(["update", str(data), "--verbose", "--releases", str(releases), "--json", *more])
        printed = self.capfd.readouterr()
        assert "Traceback" not in printed.err
        return code, json.loads(printed.out), printed.err
