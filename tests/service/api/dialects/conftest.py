"""A service with every dialect."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.service.access.files import entry, write
from tests.service.api.dialects.asking import FILTERED, KEY, SLOW
from tests.service.with_metadata import with_metadata
from tests.service_process import ServiceProcess


@pytest.fixture(scope="package")
def speaking(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:

    def more(row: int) -> dict[str, Any]:
        created = f"2012-01-{1 + row % 24:02}"
        seconds = int(datetime.fromisoformat(f"{created}T00:00:00+00:00").timestamp())
        return {"price": row / 4, "created": created, "changed": seconds}

    folder = tmp_path_factory.mktemp("dialects")
    releases = with_metadata(sample, encoder, folder, more, "--policy", "similarity", "--tau", "0.3")
    entries = [
        entry(KEY, "k", "search", "feedback", "metrics"),
        entry(FILTERED, "f", "search", filter={"category": "kostnader"}),
        entry(SLOW, "s", "search", queries_per_second=0.01),
    ]
    keys = write(folder / "keys.json", entries)
    with ServiceProcess(releases, TAUGATE_DIALECTS="openai,dify", TAUGATE_KEYS_FILE=str(keys)) as process:
        yield process.ready()
