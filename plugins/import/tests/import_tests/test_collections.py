"""Named data sets, such as `beir:scifact`, are read by the packages of their collections, from the caches of these."""

import json
import zipfile
from pathlib import Path

import pytest

from taugate.data.beir import read_dataset
from taugate.data.location import local_folder

DOCUMENTS = [
    {"_id": "d1", "title": "Pumps", "text": "How a pump is cleaned."},
    {"_id": "d2", "title": "", "text": "A valve."},
]
QRELS = [{"query-id": "q1", "corpus-id": "d1", "score": 2}]
QUERIES = [{"_id": "q1", "text": "cleaning a pump"}]
CARD = """---
configs:
- {config_name: corpus, data_files: corpus.jsonl}
- {config_name: queries, data_files: queries.jsonl}
- {config_name: default, data_files: [{split: test, path: qrels.jsonl}]}
---
"""


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is downloaded, and the caches are empty."""
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)


def write_files(folder: Path) -> Path:
    """Write the data set as a repository of the hub has it, and beside it the table of BEIR."""
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", DOCUMENTS), ("queries", QUERIES), ("qrels", QRELS)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "README.md").write_text(CARD)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\n")
    return folder


def folder_of_the_hub(_: pytest.MonkeyPatch) -> str:
    write_files(Path("pumps"))
    return "hf:pumps"


def unpacked_by_beir(_: pytest.MonkeyPatch) -> str:
    write_files(Path("datasets") / "pumps")
    return "beir:pumps"


def repositories_of_beir(_: pytest.MonkeyPatch) -> str:
    write_files(Path("BeIR") / "pumps")
    Path("BeIR/pumps-qrels").mkdir()
    Path("BeIR/pumps-qrels/test.tsv").write_bytes(Path("BeIR/pumps/qrels/test.tsv").read_bytes())
    return "beir:pumps"


def task_of_mteb(monkeypatch: pytest.MonkeyPatch) -> str:
    mteb = pytest.importorskip("mteb")
    folder = str(write_files(Path("pumps").absolute()))
    task = type(mteb.get_task("SciFact"))
    monkeypatch.setattr(
        task, "metadata", task.metadata.model_copy(update={"dataset": {"path": folder, "revision": None}})
    )
    return "mteb:SciFact"


def downloaded_by_ir_datasets(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("IR_DATASETS_HOME", str(Path("home").absolute()))  # read when the package is imported
    pytest.importorskip("ir_datasets")
    Path("home/beir/scifact").mkdir(parents=True)
    with zipfile.ZipFile("home/beir/scifact/source.zip", "w") as archive:
        for path in sorted(path for path in write_files(Path("scifact")).rglob("*") if path.is_file()):
            archive.write(path)
    return "ir_datasets:beir/scifact/test"


@pytest.mark.parametrize(
    "write", [folder_of_the_hub, unpacked_by_beir, repositories_of_beir, task_of_mteb, downloaded_by_ir_datasets]
)
def test_named_data_set_is_read_from_its_cache(write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with local_folder(write(monkeypatch), "test") as folder:
        assert [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()] == DOCUMENTS
        (tmp_path / "spool").mkdir()
        (query,) = read_dataset(folder, "test", tmp_path / "spool").answerable
        assert (query.text, query.relevant) == ("cleaning a pump", {0: 2})
