"""Every fault of a data set ends with exit code 2 and one line naming file, line, what is wrong and what to do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from taugate.calibration.metrics.inputs import clusters, judge_queries, ranking_outcomes
from taugate.calibration.settings import CalibrationSettings
from taugate.cli import main as cli
from taugate.data.beir import Dataset, read_dataset, read_people
from taugate.data.judgements import Judgement, JudgementLine
from taugate.data.queries import DatasetQuery, QueryFile, replace_queries
from taugate.data.runs.run import JudgedRun, Run
from taugate.errors import InputError
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.steps import LossSteps
from taugate.retrieval.index.flat import FlatIndex

FILES = {
    "corpus.jsonl": [
        b'{"_id": "d1", "title": "Slump", "text": "soft concrete flows", "metadata": {"year": 2001, "old": true}}',
        b'{"_id": "d2", "text": "steel bars resist tension"}',
        b'{"_id": "d3", "title": null, "text": "bricks are laid in courses", "metadata": {}}',
        b'{"_id": "d4", "text": "a beam carries load to columns"}',
        b'{"_id": "d5", "text": "mortar binds bricks"}',
    ],
    "queries.jsonl": [
        b'{"_id": "q1", "text": "how soft is the concrete"}',
        b'{"_id": "q2", "text": "what resists tension"}',
        b'{"_id": "q3", "text": "how are bricks laid"}',
    ],
    "qrels/test.tsv": [b"query-id\tcorpus-id\tscore", b"q1\td1\t2", b"q2\td2\t1", b"q3\td3\t1", b"q3\td5\t0"],
}

# Name, file, line that the message names, what takes the place of that line, what the message says is wrong.
LINE_FAULTS = [
    ("corpus not UTF-8", "corpus.jsonl", 2, b'{"_id": "d2", "text": "caf\xe9"}', "byte 0xe9 at column 27 is not UTF-8"),
    ("queries not UTF-8", "queries.jsonl", 3, b'{"_id": "q3", "text": "\xff"}', "not UTF-8"),
    ("qrels not UTF-8", "qrels/test.tsv", 3, b"q\xe92\td2\t1", "not UTF-8"),
    ("a second byte order mark", "corpus.jsonl", 1, b"\xef\xbb\xbf" * 2 + FILES["corpus.jsonl"][0], "not JSON"),
    ("not JSON", "corpus.jsonl", 3, b"d3, bricks are laid in courses", "not JSON"),
    ("truncated JSON", "corpus.jsonl", 5, b'{"_id": "d5", "text": "mort', "not JSON"),
    ("two objects on a line", "queries.jsonl", 2, b'{"_id": "q2", "text": "a"}{"_id": "q4", "text": "b"}', "not JSON"),
    ("NaN", "corpus.jsonl", 2, b'{"_id": "d2", "text": "steel", "metadata": {"year": NaN}}', "not JSON"),
    ("infinite number", "corpus.jsonl", 2, b'{"_id": "d2", "text": "steel", "metadata": {"a": 1e999}}', "not JSON"),
    ("lone surrogate", "corpus.jsonl", 2, rb'{"_id": "d2", "text": "\ud800"}', "not JSON"),
    ("lone surrogate in an id", "queries.jsonl", 2, rb'{"_id": "\udfff", "text": "what"}', "not JSON"),
    ("nested too deeply", "corpus.jsonl", 2, b'{"_id": "d2", "metadata": ' + b"[" * 9999, "not JSON"),
    ("JSON array", "queries.jsonl", 1, b'["q1", "how soft is the concrete"]', "not an object"),
    ("JSON string", "corpus.jsonl", 1, b'"soft concrete flows"', "not an object"),
    ("JSON null", "corpus.jsonl", 4, b"null", "null, not an object"),
    ("empty line in the corpus", "corpus.jsonl", 3, b"", "empty line"),
    ("blank line in the queries", "queries.jsonl", 2, b" \t", "empty line"),
    ("empty line at the end", "queries.jsonl", 4, b"", "empty line"),
    ("no _id", "corpus.jsonl", 4, b'{"id": "d4", "text": "a beam"}', 'no "_id"'),
    ("float _id", "queries.jsonl", 2, b'{"_id": 2.0, "text": "what resists tension"}', '"_id" 2.0 is not a whole'),
    ("boolean _id", "queries.jsonl", 2, b'{"_id": true, "text": "what resists tension"}', '"_id" is a boolean'),
    ("_id beyond 64 bits", "corpus.jsonl", 2, b'{"_id": 1' + b"0" * 30 + b', "text": "a"}', "is not a whole number"),
    ("null _id", "corpus.jsonl", 2, b'{"_id": null, "text": "steel"}', '"_id" is null'),
    ("empty _id", "corpus.jsonl", 1, b'{"_id": "", "text": "soft concrete"}', '"_id" is empty'),
    ("tab in _id", "corpus.jsonl", 2, rb'{"_id": "d\t2", "text": "steel"}', "holds a tab or line break"),
    ("line break in _id", "queries.jsonl", 2, rb'{"_id": "q\n2", "text": "what"}', "holds a tab or line break"),
    ("document _id twice", "corpus.jsonl", 4, b'{"_id": "d2", "text": "a beam"}', "'d2' is already on line 2"),
    ("query _id twice", "queries.jsonl", 3, b'{"_id": "q1", "text": "again"}', "'q1' is already on line 1"),
    ("no text", "corpus.jsonl", 2, b'{"_id": "d2", "title": "steel"}', 'no "text"'),
    ("empty text", "queries.jsonl", 2, b'{"_id": "q2", "text": ""}', '"text" is empty'),
    ("text a list", "corpus.jsonl", 2, b'{"_id": "d2", "text": ["steel"]}', '"text" is an array'),
    ("text a number", "queries.jsonl", 2, b'{"_id": "q2", "text": 2.5}', '"text" is a number'),
    ("title not a string", "corpus.jsonl", 1, b'{"_id": "d1", "title": 7, "text": "a"}', '"title" is not a string'),
    (
        "nested metadata",
        "corpus.jsonl",
        2,
        b'{"_id": "d2", "text": "a", "metadata": {"x": {"y": 1}}}',
        "'x' is neither",
    ),
    (
        "a number in a list",
        "corpus.jsonl",
        2,
        b'{"_id": "d2", "text": "a", "metadata": {"x": ["y", 1]}}',
        "more than str",
    ),
    (
        "a list in a list",
        "corpus.jsonl",
        2,
        b'{"_id": "d2", "text": "a", "metadata": {"x": [["y"]]}}',
        "more than strings",
    ),
    (
        "a list without end",
        "corpus.jsonl",
        2,
        b'{"_id": "d2", "text": "a", "metadata": {"x": [' + b'"y", ' * 256 + b'"z"]}}',
        "'x' lists 257 strings",
    ),
    ("metadata a string", "corpus.jsonl", 2, b'{"_id": "d2", "text": "a", "metadata": "x"}', "not an object"),
    ("metadata an empty list", "corpus.jsonl", 2, b'{"_id": "d2", "text": "a", "metadata": []}', "not an object"),
    ("metadata false", "corpus.jsonl", 2, b'{"_id": "d2", "text": "a", "metadata": false}', "not an object"),
    (
        "line break in a metadata name",
        "corpus.jsonl",
        2,
        rb'{"_id": "d2", "text": "a", "metadata": {"a\nb": {}}}',
        "is neither a scalar",
    ),
    ("header missing", "qrels/test.tsv", 1, b"q1\td4\t0", "not the header"),
    ("header of TREC", "qrels/test.tsv", 1, b"query-id\titer\tcorpus-id\tscore", "not the header"),
    ("header with spaces", "qrels/test.tsv", 1, b"query-id corpus-id score", "not the header"),
    ("two fields", "qrels/test.tsv", 2, b"q1\td1", "2 fields, not 3"),
    ("four fields", "qrels/test.tsv", 4, b"q3\t0\td3\t1", "4 fields, not 3"),
    ("empty line in the qrels", "qrels/test.tsv", 3, b"", "not 3"),
    ("score a word", "qrels/test.tsv", 3, b"q2\td2\tyes", "score 'yes' is not a whole number"),
    ("score missing", "qrels/test.tsv", 3, b"q2\td2\t", "score '' is not a whole number"),
    ("score NaN", "qrels/test.tsv", 3, b"q2\td2\tnan", "score 'nan' is not a whole number"),
    ("score a fraction", "qrels/test.tsv", 2, b"q1\td1\t1.5", "score '1.5' is not a whole number"),
    ("score in other digits", "qrels/test.tsv", 2, "q1\td1\t²".encode(), "is not a whole number"),
    ("score beyond 64 bits", "qrels/test.tsv", 2, b"q1\td1\t1" + b"0" * 30, "score"),
    ("score of 5000 digits", "qrels/test.tsv", 2, b"q1\td1\t" + b"1" * 5000, "score"),
    ("dangling query id", "qrels/test.tsv", 5, b"q9\td3\t1", "query 'q9' is not in queries.jsonl"),
    ("dangling document id", "qrels/test.tsv", 6, b"q3\td9\t1", "document 'd9' is not in corpus.jsonl"),
    ("pair judged twice", "qrels/test.tsv", 6, b"q2\td2\t0", "'q2' and 'd2' are judged twice"),
]


def without(name: str) -> Callable[[Path], None]:
    return lambda data: (data / name).unlink()


def with_bytes(name: str, content: bytes) -> Callable[[Path], None]:
    def breaks(data: Path) -> None:
        (data / name).write_bytes(content)

    return breaks


def as_folder(name: str) -> Callable[[Path], None]:
    def breaks(data: Path) -> None:
        (data / name).unlink()
        (data / name).mkdir()

    return breaks


def data_is_a_file(data: Path) -> None:
    shutil.rmtree(data)
    data.write_bytes(b"{}\n")


def other_splits_only(data: Path) -> None:
    (data / "qrels" / "test.tsv").rename(data / "qrels" / "train.tsv")
    shutil.copy(data / "qrels" / "train.tsv", data / "qrels" / "dev.tsv")


HEADER = b"query-id\tcorpus-id\tscore\n"

# Name, what breaks the data set, path that the message names, what the message says (anywhere in it).
FILE_FAULTS = [
    ("no corpus", without("corpus.jsonl"), "corpus.jsonl", "no such file"),
    ("no queries", without("queries.jsonl"), "queries.jsonl", "no such file"),
    ("no split at all", without("qrels/test.tsv"), ".", "make queries from the documents: taugate queries"),
    ("unknown split", other_splits_only, ".", "--split names one of: dev, train"),
    ("no qrels folder", lambda data: shutil.rmtree(data / "qrels"), ".", "no qrels/test.tsv, so no query is labelled"),
    ("no data set", shutil.rmtree, ".", "no such directory"),
    ("data set a file", data_is_a_file, ".", "is a file, and a data set is a directory"),
    ("corpus a folder", as_folder("corpus.jsonl"), "corpus.jsonl", "cannot be read"),
    ("qrels a folder", as_folder("qrels/test.tsv"), "qrels/test.tsv", "cannot be read"),
    ("empty corpus", with_bytes("corpus.jsonl", b""), "corpus.jsonl", "holds no document"),
    ("empty queries", with_bytes("queries.jsonl", b""), "queries.jsonl", "holds no query"),
    ("empty qrels", with_bytes("qrels/test.tsv", b""), "qrels/test.tsv:1", "not the header"),
    ("qrels with a header only", with_bytes("qrels/test.tsv", HEADER), "qrels/test.tsv", "judges no query"),
    ("zero scores only", with_bytes("qrels/test.tsv", HEADER + b"q1\td1\t0\n"), "qrels/test.tsv", "score 1 or more"),
    ("UTF-16", with_bytes("corpus.jsonl", '{"_id": "d1"}\n'.encode("utf-16")), "corpus.jsonl:1", "not UTF-8"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    for name, lines in FILES.items():
        write_lines(folder / name, lines)
    return folder


def write_lines(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def calibrate(data: Path, encoder: Path) -> int:
    return cli.main(["calibrate", str(data), "--releases", str(data.parent / "releases"), "--encoder", str(encoder)])


def refusal(data: Path, encoder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the error line for a broken data set, without "taugate: "."""
    assert calibrate(data, encoder) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1, printed.err
    assert printed.err.startswith("taugate: ")
    assert len(printed.err) < 500, "nobody reads that"
    assert not (data.parent / "releases").exists()
    return printed.err.removeprefix("taugate: ").strip()


def test_data_set_before_damage_is_valid(data: Path, encoder: Path):
    assert calibrate(data, encoder) == 0


@pytest.mark.parametrize("fault", LINE_FAULTS, ids=lambda fault: fault[0])
def test_fault_on_line_names_file_and_line(fault, data, encoder, capsys):
    _, file, line, content, problem = fault
    lines = FILES[file].copy()
    lines[line - 1 : line] = [content]
    write_lines(data / file, lines)
    message = refusal(data, encoder, capsys)
    place = f"{data / file}:{line}: "
    assert message.startswith(place)
    messages, _, remedy = message.removeprefix(place).partition("; ")
    assert problem in messages
    assert remedy


@pytest.mark.parametrize("fault", FILE_FAULTS, ids=lambda fault: fault[0])
def test_fault_of_file_names_file(fault, data, encoder, capsys):
    _, breaks, path, says = fault
    breaks(data)
    message = refusal(data, encoder, capsys)
    place = f"{data / path}: "
    assert message.startswith(place)
    assert says in message
    messages, _, remedy = message.removeprefix(place).partition("; ")
    assert messages
    assert remedy


WEIGHTED = "query-id\tcorpus-id\tscore\tweight\n"


@pytest.fixture
def weighted_data(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(f'{{"_id": "d{n}", "text": "text {n}"}}\n' for n in range(3)))
    (folder / "queries.jsonl").write_text('{"_id": "q0", "text": "one", "weight": 7}\n{"_id": "q1", "text": "two"}\n')
    return folder


def write_qrels(weighted_data: Path, text: str) -> None:
    (weighted_data / "qrels" / "human.tsv").write_text(text)


def weights(weighted_data: Path, spool: Path) -> dict[str, float]:
    dataset = read_dataset(weighted_data, "human", spool)
    return {query.id: query.weight for query in (*dataset.answerable, *dataset.unanswerable)}


def test_query_weight_without_judgement_weights_is_used(weighted_data: Path, tmp_path: Path) -> None:
    write_qrels(weighted_data, "query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td1\t0\n")
    assert weights(weighted_data, tmp_path) == {"q0": 7.0, "q1": 1.0}


def test_query_weight_is_smallest_relevant(weighted_data: Path, tmp_path: Path) -> None:
    write_qrels(weighted_data, f"{WEIGHTED}q0\td0\t0\t1\nq0\td1\t1\t5\nq0\td2\t2\t2.5\nq1\td1\t0\t4\n")
    assert weights(weighted_data, tmp_path) == {"q0": 2.5, "q1": 4.0}


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "", "two"])
def test_judgement_weight_not_positive_refused(weighted_data: Path, tmp_path: Path, weight: str) -> None:
    write_qrels(weighted_data, f"{WEIGHTED}q0\td0\t1\t{weight}\n")
    with pytest.raises(InputError, match=r"human\.tsv:2: weight .* is not a number above 0; give the inverse"):
        read_dataset(weighted_data, "human", tmp_path)


@pytest.mark.parametrize("weight", ["0", "true", '"2"', "null", "1e999"])
def test_query_weight_not_positive_refused(weighted_data: Path, tmp_path: Path, weight: str) -> None:
    (weighted_data / "queries.jsonl").write_text(f'{{"_id": "q0", "text": "one", "weight": {weight}}}\n')
    write_qrels(weighted_data, "query-id\tcorpus-id\tscore\nq0\td0\t1\n")
    with pytest.raises(InputError, match=r"queries\.jsonl:1: "):
        read_dataset(weighted_data, "human", tmp_path)


def test_weights_survive_further_judgements(weighted_data: Path) -> None:
    write_qrels(weighted_data, f"{WEIGHTED}q0\td0\t1\t5.0\n")
    added = {"n": DatasetQuery("new", "traffic")}
    replace_queries(
        weighted_data, "human", QueryFile.read(weighted_data), added, [JudgementLine("n", "d2", Judgement(1))]
    )
    assert (weighted_data / "qrels" / "human.tsv").read_text() == f"{WEIGHTED}q0\td0\t1\t5.0\nn\td2\t1\t1.0\n"
    assert (weighted_data / "queries.jsonl").read_text().splitlines()[
        2
    ] == '{"_id":"n","text":"new","origin":"traffic"}'


def test_query_judged_in_another_split_kept(weighted_data: Path) -> None:
    write_qrels(weighted_data, "query-id\tcorpus-id\tscore\nq0\td0\t1\n")
    before = QueryFile.read(weighted_data)
    replace_queries(weighted_data, "generated", before, {}, [JudgementLine("q1", "d2", Judgement(1))], removed=["q0"])
    assert QueryFile.read(weighted_data).texts() == {"q0": "one", "q1": "two"}
    replace_queries(weighted_data, "human", before, {}, [], removed=["q0"])
    assert QueryFile.read(weighted_data).texts() == {"q1": "two"}


QUERIES = [
    {"_id": "q1", "text": "how soft is concrete"},
    {"_id": "q2", "text": "who won the cup", "answerable": False},
    {"_id": "q3", "text": "who won the league"},
    {"_id": "q4", "text": "Who won  the cup", "answerable": False},
]
ROWS = ["q1\td1\t1"]


@pytest.fixture
def unanswerable_data(tmp_path: Path) -> Path:
    return data_set(tmp_path / "masonry", QUERIES, ROWS)


def data_set(folder: Path, queries: list[dict[str, object]], rows: list[str]) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "soft concrete"}\n{"_id": "d2", "text": "bricks"}\n')
    write(folder, queries, rows)
    return folder


def write(folder: Path, queries: list[dict[str, object]], rows: list[str], split: str = "test") -> None:
    (folder / "queries.jsonl").write_bytes(b"".join(orjson.dumps(query) + b"\n" for query in queries))
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")


def read(folder: Path, split: str = "test") -> Dataset:
    spool = folder.parent / f"spool-{len(list(folder.parent.iterdir()))}"
    spool.mkdir()
    return read_dataset(folder, split, spool)


def names(dataset: Dataset) -> list[str]:
    return [query.id for query in dataset.unanswerable]


def test_query_called_unanswerable_needs_no_row(unanswerable_data: Path) -> None:
    dataset = read(unanswerable_data)
    assert [query.id for query in dataset.answerable] == ["q1"]
    assert [(query.id, query.relevant, query.judged) for query in dataset.unanswerable] == [
        ("q2", {}, ()),
        ("q4", {}, ()),
    ]


def test_row_without_document_is_unanswerable(unanswerable_data: Path) -> None:
    write(unanswerable_data, QUERIES, [*ROWS, "q3\t-\t0"])
    assert names(read(unanswerable_data)) == ["q2", "q3", "q4"]


def test_rows_with_and_without_document_agree(unanswerable_data: Path) -> None:
    write(unanswerable_data, QUERIES, [*ROWS, "q3\t-\t0", "q3\td2\t0", "q2\td1\t0"])
    assert [(query.id, query.judged) for query in read(unanswerable_data).unanswerable] == [
        ("q2", (0,)),
        ("q3", (1,)),
        ("q4", ()),
    ]


def test_query_judged_in_another_split_is_not_in_this_one(unanswerable_data: Path) -> None:
    write(unanswerable_data, QUERIES, ["q1\td2\t1", "q2\t-\t0"], "train")
    assert names(read(unanswerable_data)) == ["q4"]
    assert names(read(unanswerable_data, "train")) == ["q2", "q4"]


def test_weight_of_row_without_document_counts(unanswerable_data: Path) -> None:
    (unanswerable_data / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\tweight\nq1\td1\t1\t2\nq3\t-\t0\t5\n"
    )
    assert [(query.id, query.weight) for query in read(unanswerable_data).unanswerable] == [
        ("q2", 1.0),
        ("q3", 5.0),
        ("q4", 1.0),
    ]


def test_document_with_the_id_dash_is_a_document(unanswerable_data: Path) -> None:
    with (unanswerable_data / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "-", "text": "a dash"}\n')
    write(unanswerable_data, QUERIES, [*ROWS, "q3\t-\t1"])
    assert [query.relevant for query in read(unanswerable_data).answerable] == [{0: 1}, {2: 1}]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ["q2\td1\t1"],
            r"test\.tsv:3: query 'q2' has \"answerable\": false in queries\.jsonl, .*; correct one of the two",
        ),
        (["q3\t-\t0", "q3\td1\t1"], r"test\.tsv:4: query 'q3' has a document that answers it, and a line with '-'"),
        (["q3\td1\t1", "q3\t-\t0"], r"test\.tsv:4: query 'q3' has a document that answers it, and a line with '-'"),
        (["q3\t-\t1"], r"test\.tsv:3: '-' stands for no document, so its score is 0"),
        (["q3\t-\t0", "q3\t-\t0"], r"test\.tsv:4: 'q3' and '-' are judged twice"),
    ],
)
def test_contradiction_names_file_and_line(unanswerable_data: Path, rows: list[str], message: str) -> None:
    write(unanswerable_data, QUERIES, [*ROWS, *rows])
    with pytest.raises(InputError, match=message):
        read(unanswerable_data)


def test_answerable_other_than_boolean_is_refused(unanswerable_data: Path) -> None:
    write(unanswerable_data, [*QUERIES, {"_id": "q5", "text": "why", "answerable": "no"}], ROWS)
    with pytest.raises(InputError, match=r"queries\.jsonl:5: \"answerable\" 'no' is not true or false; correct it"):
        read(unanswerable_data)


def test_equal_texts_without_document_share_a_cluster(unanswerable_data: Path) -> None:
    write(unanswerable_data, QUERIES, [*ROWS, "q3\t-\t0"])
    dataset = read(unanswerable_data)
    assert clusters(dataset.answerable + dataset.unanswerable).tolist() == [0, 1, 2, 1]


def test_labels_of_people_include_unlisted_unanswerable_queries(unanswerable_data: Path, tmp_path: Path) -> None:
    write(unanswerable_data, QUERIES, ROWS, "human")
    (tmp_path / "spool").mkdir()
    write(unanswerable_data, QUERIES, ["q1\td1\t1", "q4\t-\t0"])
    dataset = read_people(unanswerable_data, ["human"], tmp_path / "spool", lambda line: None)
    assert names(dataset) == ["q2"]
    assert dataset.other_queries is not None
    assert dataset.other_queries.unjudged == ["who won the league", "Who won  the cup"]


GRADED_HEADER = "query-id\tcorpus-id\tscore"
GRADED = ["q1\td0\t1", "q1\td1\t3", "q1\td2\t0", "q2\td0\t1", "q3\td3\t2", "q3\td4\t1"]
NOTE = "warning: grades 1 to 3: every document of grade 1 or more counts as an answer"


def written(folder: Path, rows: list[str], header: str = GRADED_HEADER, split: str = "test", **query: Any) -> Path:
    (folder / "qrels").mkdir()
    corpus = [json.dumps({"_id": f"d{row}", "text": f"text {row}"}) for row in range(6)]
    (folder / "corpus.jsonl").write_text("\n".join(corpus))
    queries = [json.dumps({"_id": f"q{row}", "text": f"question {row}", **query}) for row in (1, 2, 3)]
    (folder / "queries.jsonl").write_text("\n".join(queries))
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join([header, *rows]))
    return folder


def read_graded(folder: Path, lowest: int | None, spool: Path, split: str = "test") -> Dataset:
    spool.mkdir()
    return read_dataset(folder, split, spool, relevant_from=lowest)


def test_lower_grades_do_not_answer(tmp_path: Path) -> None:
    data = read_graded(written(tmp_path, GRADED), 2, tmp_path / "spool")
    assert [(query.id, query.relevant, query.lesser) for query in data.answerable] == [
        ("q1", {1: 3}, {0: 1}),
        ("q3", {3: 2}, {4: 1}),
    ]
    assert [(query.id, query.judged) for query in data.unanswerable] == [("q2", (0,))]
    assert (data.relevant_from, data.notes) == (2, [])


def test_grades_above_one_are_said_without_the_option(tmp_path: Path) -> None:
    folder = written(tmp_path, GRADED)
    data = read_graded(folder, None, tmp_path / "spool")
    assert len(data.answerable) == 3
    assert data.notes == [f"{NOTE}; --relevant-from 2 counts those of grade 2 or more"]
    assert read_graded(folder, 1, tmp_path / "again").notes == []
    with pytest.raises(InputError, match="no query has a document with score 4 or more"):
        read_graded(folder, 4, tmp_path / "none")


@pytest.mark.parametrize(
    ("split", "header", "rows"),
    [
        ("generated", GRADED_HEADER, ["q1\td0\t1"]),
        ("human", f"{GRADED_HEADER}\tweight", ["q1\td0\t1\t2.5", "q2\td1\t1\t2.5"]),
    ],
)
def test_judgements_without_grades_answer(tmp_path: Path, split: str, header: str, rows: list[str]) -> None:
    data = read_graded(written(tmp_path, rows, header, split), 2, tmp_path / "spool", split)
    assert len(data.answerable) == len(rows)


def test_unanswerable_query_may_have_lower_grades(tmp_path: Path) -> None:
    folder = written(tmp_path, [*GRADED[:1], "q1\td2\t0"], answerable=False)
    with pytest.raises(InputError, match="a document that answers it"):
        read_graded(folder, None, tmp_path / "spool")
    with pytest.raises(InputError, match="no query has a document"):
        read_graded(folder, 2, tmp_path / "again")


def test_run_is_joined_with_grades_that_answer(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text(
        "".join(f"q{q} Q0 d{d} {d + 1} {1 - d / 9} t\n" for q in (1, 2, 3) for d in range(5))
    )
    (tmp_path / "qrels.txt").write_text("\n".join(row.replace("\t", " 0 ", 1).replace("\t", " ") for row in GRADED))
    run = Run.read(tmp_path / "run.txt")
    joined, sentences = JudgedRun.read(run, tmp_path / "qrels.txt", 3, 2)
    assert [(query.id, query.relevant, query.lesser) for query in joined.answerable] == [
        ("q1", {1: 3}, {0: 1}),
        ("q3", {3: 2}, {4: 1}),
    ]
    assert ([query.id for query in joined.unanswerable], sentences) == (["q2"], [])
    assert JudgedRun.read(run, tmp_path / "qrels.txt", 3)[1][0].startswith(NOTE)


def test_ndcg_keeps_gains_of_lower_grades(tmp_path: Path) -> None:
    folder = written(tmp_path, GRADED)
    graded, every = (read_graded(folder, lowest, tmp_path / str(lowest)).answerable for lowest in (2, None))
    every = [query for query in every if query.id != "q2"]
    positions = np.array([[0, 2, 1, 3], [4, 0, 1, 2]])
    own, all_grades = (ranking_outcomes(queries, positions, 2) for queries in (graded, every))
    assert (own.accuracy.tolist(), all_grades.accuracy.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    np.testing.assert_array_equal(own.ndcg, all_grades.ndcg)
    assert own.ndcg[0] == pytest.approx((1 + 3 / 2) / (3 + 1 / np.log2(3)))


def test_lost_ndcg_agrees_with_its_steps(tmp_path: Path) -> None:
    queries = read_graded(written(tmp_path, GRADED), 2, tmp_path / "spool").answerable
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((8, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    judged = judge_queries(queries, vectors[6:], FlatIndex.build(vectors[:6]), 5)
    steps = LossSteps.of_ndcg(judged, judged.top.scores, SamplingUnits.from_clusters(np.arange(2)))
    for tau in np.unique(judged.top.scores):
        kept = judged.top.scores >= tau
        assert steps.at(np.array([tau])) == pytest.approx(judged.lost("ndcg", kept).sum())


def test_grade_below_one_is_refused() -> None:
    with pytest.raises(InputError, match="--relevant-from 0: give the lowest grade"):
        CalibrationSettings(relevant_from=0)
