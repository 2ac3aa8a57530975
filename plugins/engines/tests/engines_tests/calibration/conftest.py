"""A data set with metadata, and the engines that its releases are put into; servers are real."""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from engines_tests.servers import NAMES, engine_url
from taugate.calibration.acceptance import accept
from taugate.cli import main as cli
from taugate.release.engine import EngineKind
from taugate.retrieval.engines.engine import Engine, engine_from_environment
from tests.calibration.commands import Capture, arguments, small
from tests.calibration.update.corpora import Record, Updating
from tests.retrieval.engines.corpus import soon

QUERIES, TEXTS = 300, 150
OPTIONS = ("--k", "4", "--max-loss", "0.05")
ADDED, CHANGED = 3, 2  # of `changed`
BROAD = (256,)  # an engine that looks at all documents: no graph leaves one out


# Both engines pass the tests of the contract; milvus-lite takes longer, so here it passes them all only in
# `make test-exhaustive`, and those with `with_milvus_lite` in `make test-slow`.
LEVELS = [pytest.param(name, marks=[pytest.mark.exhaustive] if name == "milvus-lite" else []) for name in NAMES]
with_milvus_lite = pytest.mark.parametrize(
    "kind",
    [pytest.param(name, marks=[pytest.mark.slow] if name == "milvus-lite" else []) for name in NAMES],
    indirect=True,
    scope="module",
)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Data set and encoder; documents have metadata, some queries have no answer."""
    folder, encoder = small(tmp_path_factory.mktemp("engines"), QUERIES, lambda row: int(row % 10 != 9), texts=TEXTS)
    corpus = folder / "corpus.jsonl"
    records = [json.loads(line) for line in corpus.read_text().splitlines()]
    for row, record in enumerate(records):
        record["metadata"] = {"year": 1990 + row % 9, "lang": ["sv", "en"][row % 2], "tags": ["a", "b"][: row % 3]}
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder, encoder


@pytest.fixture(scope="module", params=LEVELS)
def kind(request: pytest.FixtureRequest) -> Iterator[EngineKind]:
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        kind, url = stack.enter_context(engine_url(request.param))
        patch.setenv("TAUGATE_ENGINE_URL", url)
        yield kind
        engine = engine_from_environment(kind)
        for name in engine.names(soon()):
            engine.drop(name, soon())


@pytest.fixture(scope="module")
def engine(kind: EngineKind) -> Engine:
    return engine_from_environment(kind)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Capture:
    return Capture(capfd)


@pytest.fixture
def update(capfd: pytest.CaptureFixture[str]) -> Updating:
    return Updating(capfd)


@pytest.fixture
def broad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accept, "BREADTHS", BROAD)


@pytest.fixture(scope="module")
def calibrated(data: tuple[Path, Path], kind: EngineKind, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Releases directories with one release of the same data set each: in the process, and over the engine."""
    folder = tmp_path_factory.mktemp("calibrated")
    found = {"here": folder / "here", "there": folder / "there"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accept, "BREADTHS", BROAD)
        for where, more in (("here", ()), ("there", ("--engine", kind))):
            assert cli.main(arguments(data[0], found[where], data[1], *OPTIONS, *more)) == 0
    return found


@pytest.fixture
def there(calibrated: dict[str, Path], tmp_path: Path) -> Path:
    """A releases directory whose one release is over the engine."""
    return shutil.copytree(calibrated["there"], tmp_path / "there")


def changed(documents: list[Record]) -> list[Record]:
    """Three documents are new, two have other texts, one has other metadata, four are gone, one has moved."""
    added = [{"_id": f"new-{row}", "text": f"word{row} word{row + 7} word{row + 13}"} for row in range(ADDED)]
    told = [
        record | {"text": f"{record['text']} word{row}"} if row in {11, 90} else record
        for row, record in enumerate(documents)
    ]
    told[20] = told[20] | {"metadata": {"year": 2001, "lang": "de", "pages": 7}}
    return [*told[1:60], *added, *told[64:], told[0]]
