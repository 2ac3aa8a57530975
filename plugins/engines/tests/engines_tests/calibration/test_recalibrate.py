"""A recalibration of a release over an engine stays there, and encodes and uploads only what is new."""

import json
from pathlib import Path
from typing import Any

import pytest

from engines_tests.calibration.conftest import OPTIONS, TEXTS
from taugate.calibration.recalibration.request import inherited_settings
from taugate.cli import main as cli
from taugate.registry.catalog import current_id
from taugate.release.engine import EngineKind, EngineRecord
from taugate.release.verify import verify
from taugate.retrieval.engines.engine import Engine
from tests.calibration.commands import arguments
from tests.calibration.update.corpora import Record, manifest_of, newer
from tests.retrieval.engines.corpus import soon

pytestmark = [pytest.mark.usefixtures("broad"), pytest.mark.slow]


def changed(documents: list[Record]) -> list[Record]:
    return [documents[0] | {"text": "word1 word2 corrected"}, *documents[1:], {"_id": "new", "text": "word5 word9"}]


def test_recalibration_stays_on_engine(
    data: tuple[Path, Path], kind: EngineKind, engine: Engine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    releases = tmp_path / "releases"
    assert cli.main(arguments(data[0], releases, data[1], *OPTIONS, "--engine", kind)) == 0
    first = verify(releases / str(current_id(releases)))

    def recalibrate(later: Path) -> tuple[Any, str]:
        capfd.readouterr()
        code = cli.main(["recalibrate", str(later), "--verbose", "--releases", str(releases), "--json"])
        printed = capfd.readouterr()
        assert code == 0, printed.err
        return json.loads(printed.out), printed.err

    later = newer(data[0], tmp_path / "later", changed)
    found, said = recalibrate(later)
    assert (found["previous"], found["promoted"]) == (first.release_id, True)
    assert found["changed"] == {"added": 1, "changed": 1, "removed": 0}
    assert f"encoded 2 of {TEXTS + 1} documents" in said
    record = EngineRecord.model_validate(manifest_of(releases)["engine"])
    assert (record.kind, record.rows) == (kind, TEXTS + 1)
    assert f"uploading {record.rows} documents to {record.collection}" in said
    assert inherited_settings(verify(releases / found["release"])) == inherited_settings(first)

    with (later / "queries.jsonl").open("a", encoding="utf-8") as queries:
        queries.write('{"_id": "late", "text": "word1 word2"}\n')
    with (later / "qrels" / "test.tsv").open("a", encoding="utf-8") as qrels:
        qrels.write("late\td1\t1\n")
    names = engine.names(soon())
    again, said = recalibrate(later)
    assert again["promoted"]
    assert again["release"] != found["release"]
    assert again["changed"] == {"added": 0, "changed": 0, "removed": 0}
    assert f"encoded 0 of {TEXTS + 1} documents" in said
    assert "; nothing to upload" in said
    assert engine.names(soon()) == names
    assert EngineRecord.model_validate(manifest_of(releases)["engine"]).collection == record.collection
    same, said = recalibrate(later)
    assert same["release"] == again["release"]
    assert "Nothing to do" in said
