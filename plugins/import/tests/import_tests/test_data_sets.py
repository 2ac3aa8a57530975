"""`taugate import` of data sets: documents keep id, title and metadata, and queries and judgements are copied."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from import_tests.test_import import corpus, imported
from taugate.cli import main as cli
from taugate.data.beir import read_dataset
from taugate_import.target import SourceQueries
from tests.data import test_judgements as unanswerable

LONG = " ".join(f"Sentence {i} tells how the pump is cleaned." for i in range(100))
DOCUMENTS: list[dict[str, Any]] = [
    {"_id": "short", "title": " Pumps", "text": "Text \n\n as it is ", "metadata": {"year": 1, "tags": ["a", "b"]}},
    {"_id": 7, "text": LONG, "title": "Care", "metadata": {"year": 2}},
    {"_id": "p#0", "text": "A chunk already. " + LONG, "parent": "p", "span": [3, 20]},
]
QUERIES = [{"_id": "q1", "text": "how often", "origin": "human", "asked": "on site"}, {"_id": 2, "text": "what"}]
HEADER = "query-id\tcorpus-id\tscore\n"


def data_set(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(item) + "\n" for item in DOCUMENTS))
    (folder / "queries.jsonl").write_text("".join(json.dumps(item) + "\n" for item in QUERIES))
    (folder / "qrels" / "test.tsv").write_text(f"{HEADER}q1\t7\t2\n2\tshort\t1\n")
    (folder / "qrels" / "dev.tsv.gz").write_bytes(gzip.compress(f"{HEADER}q1\tp\t1\n".encode()))
    (folder / "SOURCE.md").write_text("Where it is from.")
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return data_set(tmp_path / "pumps")


def files(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder except the lock and the record, by name."""
    results = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in results.items() if name not in {".import.lock", "import.json"}}


@pytest.mark.slow
def test_documents_that_fit_kept_exactly(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = imported(capsys, source, "--to", tmp_path / "data")
    lines = corpus(tmp_path / "data")
    assert lines["short"] == DOCUMENTS[0]
    assert lines["p#0"] == {"title": "", "metadata": {}} | DOCUMENTS[2]
    chunks = [line for line in lines.values() if line.get("parent") == "7"]
    assert [line["_id"] for line in chunks] == [f"7#{i}" for i in range(len(chunks))] and len(chunks) > 2
    assert all(line["text"] == LONG[slice(*line["span"])] for line in chunks)
    assert all((line["title"], line["metadata"]) == ("Care", {"year": 2}) for line in chunks)
    assert (results["documents"], results["chunks"], results["added"]) == (3, len(lines), 3)
    assert [(Path(item["path"]).name, item["reason"]) for item in results["skipped"]] == [
        ("SOURCE.md", "is not one of the data set's files")
    ]


def test_queries_and_judgements_are_copied(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dry = imported(capsys, source, "--to", tmp_path / "data", "--dry-run")
    assert not (tmp_path / "data").exists()
    results = imported(capsys, source, "--to", tmp_path / "data")
    assert results == dry and (results["queries"], results["splits"]) == (2, ["dev", "test"])
    copied = files(tmp_path / "data")
    assert [json.loads(line) for line in copied["queries.jsonl"].splitlines()] == [
        QUERIES[0],
        {"_id": "2", "text": "what"},
    ]
    assert copied["qrels/test.tsv"].decode() == f"{HEADER}q1\t7\t2\n2\tshort\t1\n"
    assert copied["qrels/dev.tsv"].decode() == f"{HEADER}q1\tp\t1\n"


def test_target_queries_are_never_overwritten(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(capsys, source, "--to", tmp_path / "data")
    own = {"queries.jsonl": b'{"_id": "mine", "text": "mine"}\n', "qrels/test.tsv": f"{HEADER}mine\t7\t1\n".encode()}
    for name, content in own.items():
        (tmp_path / "data" / name).write_bytes(content)
    assert cli.main(["import", str(source), "--to", str(tmp_path / "data")]) == 0
    assert (
        "already has a queries.jsonl, so the queries and judgements of the sources were not copied"
        in capsys.readouterr().err
    )
    assert files(tmp_path / "data") | own == files(tmp_path / "data")
    again = imported(capsys, source, "--to", tmp_path / "data")
    assert (again["queries"], again["splits"], again["changed"]) == (0, [], 0)


def test_undivided_copy_is_same_data_set(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source / "qrels" / "test.tsv").write_text(f"{HEADER}q1\t7\t2\n2\tshort\t1\n2\tp#0\t0\n")
    imported(capsys, source, "--to", tmp_path / "data", "--chunks", "off")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    before = read_dataset(source, "test", tmp_path / "one")
    after = read_dataset(tmp_path / "data", "test", tmp_path / "other")
    assert [*after.documents] == [*before.documents]
    assert (after.answerable, after.unanswerable) == (before.answerable, before.unanswerable)


def test_several_sources_get_prefixes(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("A note.")
    imported(capsys, source, tmp_path / "notes", "--to", tmp_path / "data", "--chunks", "off")
    assert [*corpus(tmp_path / "data")] == ["short", "7", "p#0", "notes/a.txt"]
    data_set(tmp_path / "valves")
    results = imported(capsys, source, tmp_path / "valves", "--to", tmp_path / "two", "--chunks", "off")
    lines = corpus(tmp_path / "two")
    assert [*lines] == [f"{name}/{item}" for name in ("pumps", "valves") for item in ("short", "7", "p#0")]
    assert lines["valves/p#0"]["parent"] == "valves/p"
    assert results["queries"] == 4
    judged = (tmp_path / "two" / "qrels" / "test.tsv").read_text().splitlines()
    assert judged[1:] == [
        "pumps/q1\tpumps/7\t2",
        "pumps/2\tpumps/short\t1",
        "valves/q1\tvalves/7\t2",
        "valves/2\tvalves/short\t1",
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("corpus.jsonl", b'{"_id": "a", "text": 1}\n', 'corpus.jsonl:1: "text" is a number'),
        ("corpus.jsonl", b"", "corpus.jsonl: holds no document"),
        ("corpus.jsonl.gz", b"", "corpus.jsonl.gz also exists"),
        ("queries.jsonl", b'{"_id": "q1"}\n', 'queries.jsonl:1: no "text"'),
        ("qrels/test.tsv", b"q1\t7\t1\n", "test.tsv:1: not the header"),
        ("qrels/test.tsv", HEADER.encode() + b"q1\t7\n", "test.tsv:2: 2 fields, not 3"),
        (
            "corpus.jsonl",
            b'{"_id": "a#0", "text": "x", "parent": "a"}\n{"_id": "a", "text": "x"}\n',
            "two documents have the id",
        ),
    ],
)
def test_data_set_fault_writes_nothing(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, message: str
) -> None:
    (source / name).write_bytes(content)
    assert cli.main(["import", str(source), "--to", str(tmp_path / "data")]) == 2
    messages = capsys.readouterr().err.strip()
    assert message in messages and "\n" not in messages
    assert not (tmp_path / "data").exists()


def test_ids_shared_by_file_and_data_set_refused(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "corpus.jsonl").write_text('{"_id": "a.txt", "text": "x"}\n')
    (tmp_path / "a.txt").write_text("A note.")
    assert cli.main(["import", str(source), str(tmp_path / "a.txt"), "--to", str(tmp_path / "data")]) == 2
    assert "two documents have the id 'a.txt'" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_packed_target_corpus_is_refused(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    imported(capsys, source, "--to", data)
    (data / "corpus.jsonl.gz").write_bytes(gzip.compress((data / "corpus.jsonl").read_bytes()))
    (data / "corpus.jsonl").unlink()
    before = files(data)
    assert cli.main(["import", str(source), "--to", str(data)]) == 2
    assert "cannot replace a compressed corpus" in capsys.readouterr().err
    assert files(data) == before


def test_empty_document_copied_with_its_judgements(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (source / "corpus.jsonl").open("a") as corpus, (source / "qrels" / "test.tsv").open("a") as qrels:
        corpus.write('{"_id": "empty", "title": "", "text": ""}\n')
        qrels.write("q1\tempty\t0\n")
    data, spool = tmp_path / "data", tmp_path / "spool"
    spool.mkdir()
    assert cli.main(["import", str(source), "--to", str(data)]) == 0
    assert read_dataset(data, "test", spool).empty == 1


def test_unanswerable_queries_and_near_misses_are_copied(tmp_path: Path) -> None:
    near_miss = {"origin": "near_miss", "kind": "name", "source": "q1", "answerable": False}
    data = unanswerable.data_set(
        tmp_path / "masonry",
        [*unanswerable.QUERIES, {"_id": "n1", "text": "how soft is gold"} | near_miss],
        [*unanswerable.ROWS, "q3\t-\t0"],
    )
    (tmp_path / "copy").mkdir()
    SourceQueries.read([(data, "a/")]).write(tmp_path / "copy")
    documents = (data / "corpus.jsonl").read_text().replace('"d', '"a/d')
    (tmp_path / "copy" / "corpus.jsonl").write_text(documents)
    dataset = unanswerable.read(tmp_path / "copy")
    assert unanswerable.names(dataset) == ["a/q2", "a/q3", "a/q4"]
    assert [query.source for query in dataset.written_near_misses] == ["a/q1"]
