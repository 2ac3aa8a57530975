"""Every fault of a data set ends with exit code 2 and one line naming file, line, what is wrong and what to do."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.cli import main as cli

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
