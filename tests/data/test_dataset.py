"""Reading of valid data sets."""

import gzip
import hashlib
import json
import tracemalloc
from pathlib import Path

import orjson
import pytest

from taugate.cli import main as cli
from taugate.data.beir import Dataset, read_dataset, read_people
from taugate.data.generation.generate import MAX_QUERIES, generate_crops
from taugate.data.location import default_split
from taugate.errors import InputError
from taugate.release.layout import TEXTS

DOCUMENTS = [
    {"_id": "d1", "title": "Slump", "text": "soft concrete flows", "metadata": {"year": 2001, "grade": None}},
    {"_id": "d2", "text": "steel bars resist tension"},
    {"_id": "d3", "title": "", "text": "bricks are laid in courses"},
    {"_id": "d4", "title": None, "text": "mortar\nbinds\u2028bricks", "metadata": None},
]
QUERIES = [
    {"_id": "zulu", "text": "how are bricks laid"},
    {"_id": "yankee", "text": "who won the cup"},
    {"_id": "mike", "text": "how soft is it", "metadata": {"asked": "on site"}},
    {"_id": "alpha", "text": "what resists tension"},
]
QRELS = [("mike", "d1", 2), ("mike", "d2", 0), ("zulu", "d4", 1), ("zulu", "d3", 3), ("yankee", "d2", 0)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path / "masonry")


def write_data(folder: Path, documents=DOCUMENTS, line_end: str = "\n") -> Path:
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / "corpus.jsonl", [orjson.dumps(item).decode() for item in documents], line_end)
    write_lines(folder / "queries.jsonl", [orjson.dumps(item).decode() for item in QUERIES], line_end)
    write_split(folder, "test", QRELS, line_end)
    return folder


def write_split(folder: Path, split: str, rows: list[tuple[str, str, int]], line_end: str = "\n") -> None:
    lines = ["query-id\tcorpus-id\tscore", *(f"{query}\t{document}\t{score}" for query, document, score in rows)]
    write_lines(folder / "qrels" / f"{split}.tsv", lines, line_end)


def write_lines(path: Path, lines: list[str], line_end: str) -> None:
    path.write_bytes("".join(line + line_end for line in lines).encode())


def read(folder: Path, split: str = "test") -> Dataset:
    spool = folder.parent / f"spool-{split}"
    spool.mkdir()
    return read_dataset(folder, split, spool)


def test_documents_keep_their_order_and_fields(data):
    documents = read(data).documents
    assert [document.id for document in documents] == ["d1", "d2", "d3", "d4"]
    assert [document.title for document in documents] == ["Slump", None, None, None]
    assert [document.text for document in documents] == [item["text"] for item in DOCUMENTS]
    assert [document.metadata for document in documents] == [{"year": 2001, "grade": None}, {}, {}, {}]


def test_title_encoded_before_the_text(data):
    first, second, third, _ = read(data).documents
    assert first.encoded_text == "Slump soft concrete flows"
    assert second.encoded_text == "steel bars resist tension"
    assert third.encoded_text == "bricks are laid in courses"


def test_queries_keep_their_file_order(data):
    assert [(query.id, query.text) for query in read(data).answerable] == [
        ("zulu", "how are bricks laid"),
        ("mike", "how soft is it"),
    ]


def test_relevant_documents_are_positions_with_grades(data):
    assert {query.id: query.relevant for query in read(data).answerable} == {"zulu": {3: 1, 2: 3}, "mike": {0: 2}}


def test_query_with_zero_scores_is_unanswerable(data):
    dataset = read(data)
    assert [(query.id, query.relevant) for query in dataset.unanswerable] == [("yankee", {})]


def test_unlisted_query_is_not_in_split(data):
    dataset = read(data)
    assert "alpha" not in {query.id for query in dataset.answerable + dataset.unanswerable}


def test_split_has_its_own_queries(data):
    write_split(data, "dev", [("alpha", "d2", 1), ("zulu", "d3", 0)])
    dataset = read(data, "dev")
    assert dataset.split == "dev"
    assert [(query.id, query.relevant) for query in dataset.answerable] == [("alpha", {1: 1})]
    assert [query.id for query in dataset.unanswerable] == ["zulu"]


def test_name_and_digests_identify_data_set(data):
    dataset = read(data)
    assert dataset.name == "masonry"
    files = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels/test.tsv"}
    expected = {part: hashlib.sha256((data / file).read_bytes()).hexdigest() for part, file in files.items()}
    assert dataset.sha256 == expected


@pytest.mark.parametrize("line_end", ["\r\n", "\n"], ids=["CRLF", "LF"])
def test_line_endings_make_no_difference(line_end, data, tmp_path):
    plain = read(data)
    other = read(write_data(tmp_path / "elsewhere" / "masonry", line_end=line_end))
    assert list(other.documents) == list(plain.documents)
    assert other.answerable == plain.answerable
    assert other.unanswerable == plain.unanswerable


def test_last_line_needs_no_line_break(data):
    for path in [data / "corpus.jsonl", data / "queries.jsonl", data / "qrels" / "test.tsv"]:
        path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    dataset = read(data)
    assert len(dataset.documents) == 4
    assert [query.id for query in dataset.unanswerable] == ["yankee"]


def test_document_of_two_megabytes_read(tmp_path):
    text = "concrete " * 250_000
    long = {"_id": "long", "text": text}
    dataset = read(write_data(tmp_path / "masonry", [*DOCUMENTS[:2], long, *DOCUMENTS[2:]]))
    assert dataset.documents[2].text == text
    assert dataset.documents[3].id == "d3"
    assert dataset.answerable[0].relevant == {4: 1, 3: 3}


def test_ids_may_hold_spaces_and_any_script(data):
    write_lines(data / "corpus.jsonl", ['{"_id": "a b", "text": "one"}', '{"_id": "二", "text": "two"}'], "\n")
    write_split(data, "test", [("zulu", "a b", 1), ("mike", "二", 1)])
    assert [query.relevant for query in read(data).answerable] == [{0: 1}, {1: 1}]


def pack(path: Path) -> None:
    """Replace a file by its packed version."""
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


FILES = ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"]


def test_packed_files_are_same_data_set(data):
    plain = read(data, "test")
    for name in FILES:
        pack(data / name)
    (data.parent / "spool-test").rename(data.parent / "spool-plain")
    packed = read(data, "test")
    assert list(packed.documents) == list(plain.documents)
    assert (packed.answerable, packed.unanswerable) == (plain.answerable, plain.unanswerable)
    expected = [hashlib.sha256((data / f"{name}.gz").read_bytes()).hexdigest() for name in FILES]
    assert [*packed.sha256.values()] == expected
    with pytest.raises(InputError, match="--split names one of: test$"):
        (data.parent / "spool-dev").mkdir()
        read_dataset(data, "dev", data.parent / "spool-dev")


@pytest.mark.parametrize("name", FILES)
def test_file_stored_packed_and_plain_refused(data, name):
    plain = (data / name).read_bytes()
    pack(data / name)
    (data / name).write_bytes(plain)
    with pytest.raises(InputError, match="also exists, and the two may differ; remove one of them") as caught:
        read(data)
    assert str(caught.value).startswith(f"{data / name}: ")


@pytest.mark.parametrize(
    "damage", [b"no gzip", gzip.compress(b'{"_id": "a", "text": "b"}\n', mtime=0)[:-9]], ids=["foreign", "cut"]
)
def test_damaged_packed_file_is_refused(data, damage):
    pack(data / "corpus.jsonl")
    (data / "corpus.jsonl.gz").write_bytes(damage)
    with pytest.raises(InputError, match=r"corpus.jsonl.gz: not a gzip file, or a damaged one; pack it again"):
        read(data)


def test_endless_packed_line_refused_in_little_memory(data):
    with gzip.open(data / "corpus.jsonl.gz", "wb", compresslevel=1) as file:
        file.write(b'{"_id": "a", "text": "b"}\n')
        for _ in range(300):
            file.write(bytes(1 << 20))
    (data / "corpus.jsonl").unlink()
    tracemalloc.start()
    with pytest.raises(InputError, match=r"corpus.jsonl.gz:2: longer than 64 MiB; divide it"):
        read(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 << 20


def test_byte_order_mark_is_skipped(data):
    plain = read(data)
    for name in FILES:
        (data / name).write_bytes(b"\xef\xbb\xbf" + (data / name).read_bytes())
    (data.parent / "spool-test").rename(data.parent / "spool-plain")
    marked = read(data)
    assert list(marked.documents) == list(plain.documents)
    assert (marked.answerable, marked.unanswerable) == (plain.answerable, plain.unanswerable)


def test_whole_numbers_become_ids(data):
    documents = ['{"_id": 7, "text": "one"}', '{"_id": -8, "text": "two"}', '{"_id": 9, "text": "x", "parent": 10}']
    write_lines(data / "corpus.jsonl", documents, "\n")
    write_lines(data / "queries.jsonl", ['{"_id": 1, "text": "first"}', '{"_id": "2", "text": "second"}'], "\n")
    write_split(data, "test", [("1", "7", 1), ("2", "-8", 1)])
    dataset = read(data)
    assert [document.id for document in dataset.documents] == ["7", "-8", "9"]
    assert dataset.documents[2].parent == "10"
    assert [(query.id, query.relevant) for query in dataset.answerable] == [("1", {0: 1}), ("2", {1: 1})]


def test_number_and_equal_text_are_one_id(data):
    write_lines(data / "corpus.jsonl", ['{"_id": 7, "text": "one"}', '{"_id": "7", "text": "two"}'], "\n")
    with pytest.raises(InputError, match="'7' is already on line 1"):
        read(data)


IN_CHUNKS = [
    {"_id": "d1", "text": "soft concrete flows"},
    {"_id": "d2#0", "text": "steel bars resist tension", "parent": "d2", "span": [0, 25]},
    {"_id": "d3", "text": "bricks are laid in courses", "parent": "d4"},
    {"_id": "d2#1", "text": "and concrete resists pressure", "parent": "d2", "span": [26, 55]},
    {"_id": "d4#1", "text": "mortar binds bricks", "parent": "d4"},
]


def test_judged_id_names_passage_or_document(data):
    write_lines(data / "corpus.jsonl", [orjson.dumps(item).decode() for item in IN_CHUNKS], "\n")
    write_split(data, "test", [("mike", "d2", 2), ("mike", "d1", 1), ("zulu", "d4#1", 3), ("yankee", "d4", 0)])
    dataset = read(data)
    assert [(query.id, query.relevant, query.chunks) for query in dataset.answerable] == [
        ("zulu", {2: 3}, {2: (4,)}),
        ("mike", {1: 2, 0: 1}, {0: (0,)}),
    ]
    assert [(query.id, query.judged) for query in dataset.unanswerable] == [("yankee", (2,))]


def test_passage_id_precedes_document_id(data):
    records = [*IN_CHUNKS, {"_id": "d4", "text": "a summary of all that mortar binds"}]
    write_lines(data / "corpus.jsonl", [orjson.dumps(item).decode() for item in records], "\n")
    write_split(data, "test", [("mike", "d4", 1)])
    (query,) = read(data).answerable
    assert (query.relevant, query.chunks) == ({5: 1}, {5: (5,)})


def test_parent_and_chunk_may_both_be_judged(data):
    write_lines(data / "corpus.jsonl", [orjson.dumps(item).decode() for item in IN_CHUNKS], "\n")
    write_split(data, "test", [("mike", "d2", 1), ("mike", "d2#1", 2)])
    (query,) = read(data).answerable
    assert (query.relevant, query.chunks) == ({1: 2}, {})
    write_split(data, "dev", [("mike", "d2", 1), ("mike", "d2#1", 2), ("mike", "d2", 2)])
    with pytest.raises(InputError, match=r"dev.tsv:4: 'mike' and 'd2' are judged twice; keep one of the two lines"):
        read(data, "dev")


def test_unknown_judged_id_is_refused(data):
    write_lines(data / "corpus.jsonl", [orjson.dumps(item).decode() for item in IN_CHUNKS], "\n")
    write_split(data, "test", [("mike", "d2", 1), ("mike", "d2#2", 2)])
    with pytest.raises(InputError, match=r"test.tsv:3: document 'd2#2' is not in corpus.jsonl"):
        read(data)


def test_full_disk_for_documents_reported(data: Path, tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / TEXTS).symlink_to("/dev/full")
    with pytest.raises(
        OSError, match=r"cannot be copied there \(No space left on device\); .*another folder in TMPDIR"
    ):
        read_dataset(data, "test", tmp_path / "spool")


def with_splits(folder: Path, *splits: str) -> str:
    (folder / "qrels").mkdir()
    for split in splits:
        (folder / "qrels" / f"{split}.tsv").touch()
    return str(folder)


@pytest.mark.parametrize(
    ("splits", "chosen"),
    [
        (["generated", "human", "test", "train"], "test"),
        (["generated", "human", "train"], "human"),
        (["generated"], "generated"),
    ],
)
def test_default_split_prefers_human_queries(tmp_path: Path, splits: list[str], chosen: str) -> None:
    messages: list[str] = []
    assert default_split(with_splits(tmp_path, *splits), messages.append) == chosen
    assert messages == []


def test_default_split_names_other_human_splits(tmp_path: Path) -> None:
    messages: list[str] = []
    assert default_split(with_splits(tmp_path, "generated", "train", "dev"), messages.append) == "generated"
    assert messages == ["calibrating on the split generated; human queries are in dev, train: choose one with --split"]


def test_default_split_without_labels_suggests_crops(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"taugate queries {tmp_path} --method crop"):
        default_split(str(tmp_path), print)


def test_default_split_without_default_names_alternatives(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--split names one of: dev, train"):
        default_split(with_splits(tmp_path, "train", "dev"), print)


def test_documents_alone_become_a_release(
    tmp_path: Path, sample: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, releases = tmp_path / "data", tmp_path / "releases"
    data.mkdir()
    (data / "corpus.jsonl").write_bytes((sample / "corpus.jsonl").read_bytes())
    calibrate = ["calibrate", str(data), "--verbose", "--releases", str(releases), "--encoder", str(encoder)]
    assert cli.main(calibrate) == 2
    assert capsys.readouterr().err.rstrip().endswith(f"taugate queries {data} --method crop")
    assert not releases.exists()
    generate_crops(data, MAX_QUERIES, 0)
    assert cli.main(calibrate) == 0
    assert '"split":"generated"' in next(releases.glob("*/manifest.json")).read_text().replace(" ", "")


BY_PEOPLE = {"q1": "human", "q2": "human", "q3": "traffic", "q4": "traffic", "q5": "human", "c1": "crop", "c2": "llm"}
SPLITS = {
    "human": ["q2\td1\t1\t2", "q1\td2\t1\t6", "c1\td1\t1\t1"],
    "traffic": ["q3\td1\t1\t10", "q1\td1\t1\t10", "q4\td2\t0\t30"],
    "generated": ["c1\td1\t1\t1", "c2\td2\t1\t1"],
}


@pytest.fixture
def judged_data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    (tmp_path / "spool").mkdir()
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"_id": f"d{n}", "text": "x"}) + "\n" for n in (1, 2)))
    lines = [json.dumps({"_id": name, "text": name, "origin": origin}) for name, origin in BY_PEOPLE.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    for split, rows in SPLITS.items():
        (folder / "qrels" / f"{split}.tsv").write_text(
            "\n".join(["query-id\tcorpus-id\tscore\tweight", *rows]) + "\n", encoding="utf-8"
        )
    return folder


def test_splits_become_one_data_set(judged_data: Path, tmp_path: Path) -> None:
    messages: list[str] = []
    results = read_people(judged_data, ("human", "traffic"), tmp_path / "spool", messages.append)
    assert [(query.id, query.weight) for query in results.answerable] == [("q1", 1.5), ("q2", 0.5), ("q3", 1.0)]
    assert results.unanswerable == [], "users saw no answer to q4, which may have one all the same"
    assert results.answerable[0].relevant == {1: 1}, "the judgement of the first split"
    assert results.other_queries is not None
    assert results.other_queries.unjudged == ["q5"]
    assert results.other_queries.seen_only == {"q3"}
    assert [query.id for query in results.other_queries.generated] == ["c1", "c2"]
    assert messages == ["left out judged queries that were generated: 1; people phrase queries differently"]


def test_queries_judged_only_by_users_are_no_sample(judged_data: Path, tmp_path: Path) -> None:
    results = read_people(judged_data, ("human",), tmp_path / "spool", lambda line: None)
    assert results.other_queries is not None
    assert results.other_queries.unjudged == ["q5"]
    assert results.other_queries.seen_only == set()


def test_missing_split_is_named(judged_data: Path, tmp_path: Path) -> None:
    (judged_data / "qrels" / "traffic.tsv").unlink()
    with pytest.raises(InputError, match=r"traffic\.tsv: no such file; --split names one of: generated, human"):
        read_people(judged_data, ("human", "traffic"), tmp_path / "spool", print)
