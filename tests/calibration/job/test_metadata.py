"""Metadata goes into the release as columns, the same bytes for the same corpus, and a corpus of names is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from taugate.errors import ReleaseError
from taugate.release.layout import METADATA
from taugate.release.verify import verify
from taugate.retrieval.documents.filters import OneOf, Range, all_of
from taugate.retrieval.documents.store import MAX_FIELDS
from taugate.retrieval.reader import load
from tests.calibration.commands import Capture, arguments, refusal, small


def with_metadata(data: Path, records: list[dict]) -> None:
    path = data / "corpus.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line, record in zip(lines, records, strict=True):
        line["metadata"] = record
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


RECORDS = [
    {
        "year": 1990 + row % 7,
        "språk": "sv" if row % 2 else None,
        "open": row % 3 == 0,
        "x": [1, True, "1", 1.5][row % 4],
    }
    if row % 5
    else {}
    for row in range(60)
]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Capture:
    return Capture(capfd)


def test_metadata_is_stored_reproducibly(tmp_path: Path, run: Capture) -> None:
    data, encoder = small(tmp_path, 150)
    _, plain, _ = run(data, tmp_path / "r", encoder)
    assert METADATA not in plain["files"]
    with_metadata(data, RECORDS)
    manifests = [run(data, tmp_path / folder, encoder)[1] for folder in ("a", "b")]
    assert len({manifest["release_id"][-12:] for manifest in (plain, *manifests)}) == 2
    assert manifests[0]["files"] == {**manifests[1]["files"], "report.html": manifests[0]["files"]["report.html"]}
    assert {**manifests[0]["policy"]} == plain["policy"]

    release = load(tmp_path / "a" / manifests[0]["release_id"])
    assert [*release.metadata.columns] == ["open", "språk", "x", "year"]
    rows = {
        (OneOf.of("x", True),): [row for row in range(60) if row % 5 and row % 4 == 1],
        (OneOf.of("x", 1),): [row for row in range(60) if row % 5 and row % 4 == 0],
        all_of(Range("year", gt=1992), OneOf.of("språk", "sv")): [
            row for row in range(60) if row % 5 and row % 7 > 2 and row % 2
        ],
    }
    for wanted, expected in rows.items():
        assert np.flatnonzero(release.metadata.where(wanted)).tolist() == expected


def test_damaged_metadata_is_detected(tmp_path: Path, run: Capture) -> None:
    data, encoder = small(tmp_path, 150)
    with_metadata(data, RECORDS)
    _, manifest, _ = run(data, tmp_path / "a", encoder)
    release = tmp_path / "a" / manifest["release_id"]
    content = bytearray((release / METADATA).read_bytes())
    content[-1] ^= 1
    (release / METADATA).write_bytes(content)
    with pytest.raises(ReleaseError, match=METADATA):
        verify(release)
    (release / METADATA).unlink()
    with pytest.raises(ReleaseError, match=METADATA):
        verify(release)


def test_too_many_field_names_are_rejected(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data, encoder = small(tmp_path, 150)
    with_metadata(data, [{f"{row}-{name}": 1 for name in range(5)} for row in range(60)])
    said = refusal(arguments(data, tmp_path / "r", encoder), tmp_path / "r", capfd)
    assert said.startswith(f"{data / 'corpus.jsonl'}:{MAX_FIELDS // 5 + 1}: metadata has over {MAX_FIELDS} field names")


def test_maximum_number_of_fields(tmp_path: Path, run: Capture) -> None:
    data, encoder = small(tmp_path, 150)
    with_metadata(data, [{f"f{name}": row for name in range(MAX_FIELDS)} | {"none": None} for row in range(60)])
    _, manifest, _ = run(data, tmp_path / "r", encoder)
    assert len(load(tmp_path / "r" / manifest["release_id"]).metadata.columns) == MAX_FIELDS
