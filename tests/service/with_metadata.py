"""Releases of the sample whose documents have other metadata."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taugate.cli import main as cli

Metadata = Callable[[int], dict[str, Any]]


def with_metadata(sample: Path, encoder: Path, folder: Path, more: Metadata | None, *options: str) -> Path:
    """Calibrate with `more` metadata by row of the corpus, or with none at all; returns `folder`/releases."""
    data, releases = shutil.copytree(sample, folder / "data"), folder / "releases"
    lines = [json.loads(line) for line in (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    for row, record in enumerate(lines):
        record["metadata"] = record["metadata"] | more(row) if more else {}
    (data / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    command = ["calibrate", str(data), "--releases", str(releases), "--encoder", str(encoder), *options]
    assert cli.main(command) == 0
    return releases
