"""The same input gives the same digest, a known text is not encoded twice; the stages of a calibration."""

import ast
import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from taugate.calibration import job
from taugate.calibration.job.calibration import CalibrationRequest
from taugate.calibration.job.release_stages import Calibration, DecidedRelease
from taugate.calibration.job.stages import Accepted, EncodedData, Read
from taugate.calibration.study.study import Study
from taugate.calibration.update.job import CheckedUpdate, NewerCorpus
from taugate.cli import main as cli
from taugate.registry.catalog import current_id, release_ids
from taugate.release.layout import content_digest
from taugate.release.verify import verify
from tests.calibration.commands import Printed
from tests.fake_encoder import DIMENSION


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def calibrate(data: Path, releases: Path, encoder: Path, *options: str) -> int:
    return cli.main(
        ["calibrate", str(data), "--verbose", "--releases", str(releases), "--encoder", str(encoder), *options]
    )


def digests(releases: Path) -> set[str]:
    return {
        content_digest(json.loads((releases / name / "manifest.json").read_bytes())) for name in release_ids(releases)
    }


@pytest.mark.slow
def test_digest_ignores_cache(sample: Path, encoder: Path, tmp_path: Path, fresh_cache: Path) -> None:
    assert calibrate(sample, tmp_path / "a", encoder) == 0
    assert calibrate(sample, tmp_path / "b", encoder) == 0
    shutil.rmtree(fresh_cache)
    assert calibrate(sample, tmp_path / "c", encoder) == 0
    assert len(digests(tmp_path / "a") | digests(tmp_path / "b") | digests(tmp_path / "c")) == 1
    assert calibrate(sample, tmp_path / "a", encoder, "--seed", "1") == 0
    assert len(digests(tmp_path / "a")) == 2


@pytest.mark.slow
def test_changed_corpus_encodes_new_texts(
    sample: Path, encoder: Path, tmp_path: Path, fresh_cache: Path, capfd: Printed
) -> None:
    changed = shutil.copytree(sample, tmp_path / "changed")
    lines = (changed / "corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    lines[3] = json.dumps(json.loads(lines[3]) | {"text": "A new text for an old document."}) + "\n"
    lines.append(json.dumps({"_id": "new", "text": "A document that was not there."}) + "\n")
    (changed / "corpus.jsonl").write_text("".join(lines), encoding="utf-8")

    assert calibrate(sample, tmp_path / "r", encoder) == 0
    assert "Encoded 503 of 503 documents and 497 of 503 queries in " in capfd.readouterr().err
    assert calibrate(changed, tmp_path / "r", encoder) == 0
    assert "Encoded 2 of 504 documents and 0 of 503 queries" in capfd.readouterr().err
    shutil.rmtree(fresh_cache)
    assert calibrate(changed, tmp_path / "s", encoder) == 0
    assert digests(tmp_path / "s") < digests(tmp_path / "r")


def test_broken_cache_is_ignored(
    sample: Path, encoder: Path, tmp_path: Path, fresh_cache: Path, capfd: Printed
) -> None:
    assert calibrate(sample, tmp_path / "r", encoder) == 0
    (database,) = fresh_cache.rglob("*.sqlite")
    database.write_bytes(b"not a database" * 1000)
    assert calibrate(sample, tmp_path / "s", encoder) == 0
    assert "warning: no embedding cache" in capfd.readouterr().err
    assert digests(tmp_path / "s") == digests(tmp_path / "r")


def test_invalid_cached_vectors_are_ignored(
    sample: Path, encoder: Path, tmp_path: Path, fresh_cache: Path, capfd: Printed
) -> None:
    assert calibrate(sample, tmp_path / "r", encoder) == 0
    (database,) = fresh_cache.rglob("*.sqlite")
    with sqlite3.connect(database) as connection:
        nan = np.full(DIMENSION, np.nan, dtype=np.float32).tobytes()
        connection.execute("UPDATE embedding SET vector = ?", (nan,))
        connection.execute("UPDATE embedding SET vector = x'00' WHERE key IN (SELECT MAX(key) FROM embedding)")
    capfd.readouterr()
    assert calibrate(sample, tmp_path / "s", encoder) == 0
    assert "Encoded 503 of 503 documents and 497 of 503 queries" in capfd.readouterr().err, "6 repeat a text"
    assert digests(tmp_path / "s") == digests(tmp_path / "r")


def test_truncated_documents_are_counted(sample: Path, encoder: Path, tmp_path: Path, capfd: Printed) -> None:
    assert calibrate(sample, tmp_path, encoder, "--json") == 0
    out, error = capfd.readouterr()
    truncated = json.loads(out)["manifest"]["data"]["truncated_documents"]
    lines = (sample / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [f"{each.get('title') or ''} {each['text']}".strip() for each in map(json.loads, lines)]
    tokenizer = Tokenizer.from_file(str(encoder / "tokenizer.json"))
    tokenizer.no_truncation()
    assert truncated == sum(len(tokenizer.encode(text).ids) > 64 for text in texts) > 0
    (said,) = re.findall(r"^warning: .* longer than the encoder's 64 tokens.*$", error, re.MULTILINE)
    assert said.startswith(f"warning: {truncated} of 503 documents (")
    assert "; cut them with: taugate import DATA --to NEW" in said


def test_no_promote_keeps_current_release(sample: Path, encoder: Path, tmp_path: Path) -> None:
    assert calibrate(sample, tmp_path, encoder, "--no-promote") == 0
    assert current_id(tmp_path) is None
    assert calibrate(sample, tmp_path, encoder) == 0
    first, known = current_id(tmp_path), set(release_ids(tmp_path))
    assert calibrate(sample, tmp_path, encoder, "--seed", "9", "--no-promote") == 0
    assert current_id(tmp_path) == first
    (other,) = set(release_ids(tmp_path)) - known
    assert verify(tmp_path / other).parent == first


def test_unanswerable_queries_measure_abstention(sample: Path, encoder: Path, tmp_path: Path, capfd: Printed) -> None:
    asked = shutil.copytree(sample, tmp_path / "data")
    with (asked / "queries.jsonl").open("a", encoding="utf-8") as queries:
        queries.write(json.dumps({"_id": "u", "text": "zzz yyy xxx"}) + "\n")
    with (asked / "qrels" / "test.tsv").open("a", encoding="utf-8") as qrels:
        qrels.write("u\tbygglov-001\t0\n")
    assert calibrate(sample, tmp_path / "r", encoder, "--json") == 0
    without = json.loads(capfd.readouterr().out)["manifest"]
    assert calibrate(asked, tmp_path / "r", encoder, "--json") == 0
    manifest = json.loads(capfd.readouterr().out)["manifest"]
    assert (manifest["data"]["answerable"], manifest["data"]["unanswerable"]) == (503, 1)
    assert manifest["policy"] == without["policy"]
    part, before = manifest["metrics"]["calibration"], without["metrics"]["calibration"]
    assert part["abstention"]["unanswerable_empty"] in {0.0, 1.0}
    assert before["abstention"].get("unanswerable_empty") is None
    assert {name: part[name] for name in part if name != "abstention"} == {
        name: before[name] for name in before if name != "abstention"
    }


CALIBRATION = Path(job.__path__[0]).parent
STAGES = ("job", "update", "recalibration")
RECORDS = [
    CalibrationRequest,
    Read,
    EncodedData,
    Accepted,
    Study,
    DecidedRelease,
    Calibration,
    NewerCorpus,
    CheckedUpdate,
]


def files(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for path in sorted((CALIBRATION / folder).rglob("*.py")):
            yield path.relative_to(CALIBRATION).as_posix(), ast.parse(path.read_text("utf-8"))


@pytest.mark.parametrize("record", RECORDS)
def test_record_of_stage_is_frozen(record: type) -> None:
    blank = object.__new__(record)
    with pytest.raises(FrozenInstanceError):
        setattr(blank, fields(record)[0].name, None)


def test_stages_pass_no_untyped_dictionary() -> None:
    untyped = {"dict[str, Any]", "dict[str, object]", "Mapping[str, Any]", "Mapping[str, object]"}
    found = [
        f"{name}:{node.lineno}"
        for name, tree in files(*STAGES)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and ast.unparse(node) in untyped
    ]
    assert found == []


def test_one_file_makes_manifests() -> None:
    makers = {
        name
        for name, tree in files("")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for called in (node.func, *(node.args[:1] if ast.unparse(node.func) == "partial" else ()))
        if ast.unparse(called) in {"Manifest", "RunManifest"}
    }
    assert makers == {"job/release_stages.py"}
