"""Two services with the same release: one with its documents in the process, the other in an engine."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from milvus_lite.server_manager import server_manager_instance

from engines_tests.servers import NAMES, engine_url
from engines_tests.service.pair import KEYS, WHOLE, Services
from taugate.retrieval.engines.engine import connect
from tests.engine_release import write_pair
from tests.redis_process import RedisProcess
from tests.service.access.files import bearer, write
from tests.service.drift.traffic import FastDriftService
from tests.service.with_metadata import with_metadata

# Both engines pass the tests of the contract; here milvus-lite, which takes longer, is for `make test-slow`.
LEVELS = [pytest.param(name, marks=[pytest.mark.slow] if name == "milvus-lite" else []) for name in NAMES]


@pytest.fixture(scope="package")
def rich(tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path) -> Path:
    """Releases of the sample, whose documents have metadata of every kind."""

    def more(row: int) -> dict[str, Any]:
        day = f"20{row % 20:02}-05-0{1 + row % 9}" + ("" if row % 2 else "T23:30:00-02:00")
        return {"year": 1990 + row % 40, "checked": row % 3 == 0, "day": day, "tags": ["pump", "valve"][: row % 3]}

    return with_metadata(sample, encoder, tmp_path_factory.mktemp("rich"), more)


@pytest.fixture(scope="package", params=LEVELS)
def services(
    request: pytest.FixtureRequest, rich: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("services")
    keys = write(folder / "keys.json", KEYS)
    logs = folder / "here.jsonl", folder / "there.jsonl"
    with ExitStack() as stack:
        kind, url = stack.enter_context(engine_url(request.param))
        if url.endswith(".db"):  # a file that one process may open: the service asks the server in this one
            url = server_manager_instance.start_and_get_uri(url)
        pair = write_pair(rich, folder / "releases", connect(kind, [url]))
        other = shutil.copytree(pair.folder, folder / "other")
        (other / "current").write_text(f"{pair.there}\n")
        redis = stack.enter_context(RedisProcess(folder))
        settings = {
            "TAUGATE_KEYS_FILE": str(keys),
            "TAUGATE_DIALECTS": "openai,dify",
            "TAUGATE_QUERY_LOG_TEXTS": "true",
            "TAUGATE_REDIS_URL": redis.url,
            "TAUGATE_REDIS_TIMEOUT_MS": "500",
        }
        started = [
            stack.enter_context(FastDriftService(where, **settings, TAUGATE_QUERY_LOG=str(log), **own))
            for where, log, own in (
                (pair.folder, logs[0], {}),
                (other, logs[1], {"TAUGATE_ENGINE_URL": url, "TAUGATE_ENGINE_TIMEOUT_MS": "4000"}),
            )
        ]
        here, there = (each.ready() for each in started)
        for each in started:
            each.http.headers.update(bearer(WHOLE))
        yield Services(here, there, kind, other, pair.there, redis, logs, settings | {"TAUGATE_ENGINE_URL": url})
