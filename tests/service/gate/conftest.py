"""A release of a run of rank fusion with the cosine beside it, and a service of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taugate.cli import main as cli
from tests.runs import dense_results, fused_with_cosine, write_json
from tests.service_process import ServiceProcess


@pytest.fixture(scope="package")
def run(tmp_path_factory: pytest.TempPathFactory, sample: Path, releases: Path) -> Path:
    folder = tmp_path_factory.mktemp("run")
    return fused_with_cosine(write_json(folder / "dense.jsonl", dense_results(sample, releases)))


@pytest.fixture(scope="package")
def gate_releases(run: Path, sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate-releases")
    options = ("--policy", "probability", "--max-loss", "0.1", "--drawn", "queries")
    assert (
        cli.main(["calibrate-run", str(run), str(sample / "qrels" / "test.tsv"), "--releases", str(folder), *options])
        == 0
    )
    return folder


@pytest.fixture(scope="package")
def queries(run: Path) -> list[dict[str, Any]]:
    """The queries of the run as bodies of /gate."""
    records = [json.loads(line) for line in run.read_text(encoding="utf-8").splitlines()]
    return [{"query": record["query"], "results": record["results"]} for record in records]


@pytest.fixture(scope="package")
def gate_service(gate_releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    log = tmp_path_factory.mktemp("log") / "queries.jsonl"
    with ServiceProcess(gate_releases, forked=False, TAUGATE_QUERY_LOG=str(log), TAUGATE_WORKERS="1") as service:
        yield service.ready()
