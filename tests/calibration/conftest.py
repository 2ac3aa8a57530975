"""`taugate calibrate` as a fixture, and a data set that the real encoder encodes fast."""

import json
from pathlib import Path

import pytest
import zaragoza_construction_faq

from tests.calibration.commands import Capture, Printed

BRIEF = 200  # questions, and characters of an answer


@pytest.fixture
def calibrate(capfd: Printed) -> Capture:
    return Capture(capfd)


@pytest.fixture(scope="session")
def brief(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first questions of the sample, and the beginnings of their answers."""
    folder = tmp_path_factory.mktemp("brief")
    entries = zaragoza_construction_faq.load(lang="en")[:BRIEF]
    for name, key, length in (("corpus", "a", BRIEF), ("queries", "q", None)):
        lines = [json.dumps({"_id": str(row), "text": entry[key][:length]}) for row, entry in enumerate(entries)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "qrels").mkdir()
    pairs = ["query-id\tcorpus-id\tscore", *(f"{row}\t{row}\t1" for row in range(len(entries)))]
    (folder / "qrels" / "test.tsv").write_text("\n".join(pairs) + "\n", "utf-8")
    return folder
