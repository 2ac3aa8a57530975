"""A service with every dialect."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from taugate.cli import main as cli
from tests.service.api.dialects.asking import FILTERED, KEY, SLOW
from tests.service_process import ServiceProcess


@pytest.fixture(scope="package")
def speaking(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("dialects")
    releases, keys, data = folder / "releases", folder / "keys.json", shutil.copytree(sample, folder / "data")
    lines = [json.loads(line) for line in (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    for row, record in enumerate(lines):
        created = f"2012-01-{1 + row % 24:02}"
        seconds = int(datetime.fromisoformat(f"{created}T00:00:00+00:00").timestamp())
        record["metadata"] |= {"price": row / 4, "created": created, "changed": seconds}
    (data / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    calibrate = ["calibrate", str(data), "--releases", str(releases), "--encoder", str(encoder)]
    assert cli.main([*calibrate, "--policy", "similarity", "--tau", "0.3"]) == 0
    more: dict[str, dict[str, Any]] = {
        KEY: {"scopes": ["search", "feedback", "metrics"]},
        FILTERED: {"filter": {"category": "kostnader"}},
        SLOW: {"queries_per_second": 0.01},
    }
    entries = [
        {"name": key[3], "sha256": hashlib.sha256(key.encode()).hexdigest(), "scopes": ["search"], **fields}
        for key, fields in more.items()
    ]
    keys.write_text(json.dumps(entries))
    with ServiceProcess(releases, TAUGATE_DIALECTS="openai,dify", TAUGATE_KEYS_FILE=str(keys)) as process:
        yield process.ready()
