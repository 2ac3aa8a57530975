"""Crops copy their document and questions do not, and a document that stands in the corpus twice is found."""

import json
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode_dataset
from taugate.calibration.progress import Job
from taugate.calibration.query_set.warnings import (
    COPIED,
    RepeatedAnswer,
    Wording,
    compare_wording,
    containment,
    resemblance,
    shingles,
    wording_warnings,
)
from taugate.data.beir import read_dataset
from taugate.data.generation.generate import crop
from taugate.data.labelled_queries import LabelledQuery
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.flat import FlatIndex
from tests.calibration.report.studies import sample_texts

ENGLISH = (
    "The old bridge over the river was built by the engineers of the town in 1857, because the ferry sank twice in the "
    "same winter; it carried carts, sheep and, on Sundays, whole families until the flood of 1910 took two arches away "
    "and the council decided, after long debates, that a wider crossing should be put up half a mile further south."
)
CHINESE = (
    "长江大桥于一八五七年由当地的工程师建造，因为渡轮在同一个冬天沉没了两次；"
    "它承载着马车、羊群和星期天的家庭，直到洪水冲走了两个桥拱。"
)
THAI = "สะพานเก่าข้ามแม่น้ำสร้างขึ้นโดยวิศวกรของเมืองเพราะเรือข้ามฟากจมลงสองครั้งในฤดูหนาวเดียวกันและน้ำท่วมพัดเอาซุ้มสองซุ้มไป"


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, THAI], ids=["English", "Chinese", "Thai"])
def test_crops_are_detected_as_copies(text: str) -> None:
    """With one word in ten left out, in scripts with spaces and without."""
    complete = shingles(text)
    crops = [crop(text, f"d{at}", 0) for at in range(200)]
    shares = [containment(shingles(item), complete) for item in crops if len(shingles(item)) >= 4]
    assert len(shares) > 100
    assert np.mean(np.array(shares) >= COPIED) > 0.8


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Why did the people of the town replace their ferry with a bridge?", ENGLISH),
        ("为什么当地人要用一座桥来代替原来的渡轮？", CHINESE),
    ],
)
def test_paraphrased_question_is_no_copy(question: str, text: str) -> None:
    assert containment(shingles(question), shingles(text)) < COPIED / 2


def test_containment_ignores_case_and_marks() -> None:
    requested = shingles("THE OLD BRIDGE, over the ｒｉｖｅｒ: was built!")
    assert containment(requested, shingles(ENGLISH)) == 1.0


def test_shares_equal_python_sets() -> None:
    """Against Python's sets, on random texts."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        texts = [" ".join(rng.choice([*"abcdef"], rng.integers(0, 30))) for _ in range(2)]
        one, other = ({*zip(item.split(), item.split()[1:], item.split()[2:], strict=False)} for item in texts)
        expected = (
            len(one & other) / len(one) if one else 0.0,
            len(one & other) / len(one | other) if one | other else 0.0,
        )
        hashed = [shingles(item) for item in texts]
        assert (containment(*hashed), resemblance(*hashed)) == pytest.approx(expected)


@pytest.fixture
def data(sample: Path, tmp_path: Path) -> Path:
    """Documents of which d3 stands twice but for a word, d5 twice and both labelled; q1 copies its document."""
    texts = sample_texts(sample)[0][:8]
    texts += [texts[3].replace(texts[3].split()[20], "other"), texts[5]]
    queries = [f"what is said of {text.split()[3]} and {text.split()[20]} there" for text in texts[:8]]
    queries[1] = " ".join(texts[1].split()[7:20])
    labels = [(at, at) for at in range(8)] + [(5, 9)]
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    for name, prefix, item in (("corpus", "d", texts), ("queries", "q", queries)):
        lines = [json.dumps({"_id": f"{prefix}{at}", "text": text}) + "\n" for at, text in enumerate(item)]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    rows = "".join(f"q{query}\td{document}\t1\n" for query, document in labels)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return folder


def compared(data: Path, encoder_folder: Path) -> tuple[list[LabelledQuery], Wording]:
    (spool := data.parent / "spool").mkdir()
    dataset, encoder = read_dataset(data, "test", spool), ExportedEncoder.load(encoder_folder)
    cache = EmbeddingCache.of(encoder)
    encoded = encode_dataset(dataset, encoder, cache, Job())
    return dataset.answerable, compare_wording(dataset, encoded, FlatIndex.build(encoded.documents))


def test_copies_and_repeats_are_found(data: Path, encoder: Path) -> None:
    queries, wording = compared(data, encoder)
    assert [queries[row].id for row in wording.copies] == ["q1"]
    assert [(queries[item.row].id, {item.passage, item.copy}, item.labelled) for item in wording.repeated] == [
        ("q3", {3, 8}, False),
        ("q5", {5, 9}, True),
    ]
    assert wording.unlabelled == wording.repeated[:1]


def test_chunks_of_document_are_no_repeats(data: Path, encoder: Path) -> None:
    records = [json.loads(line) for line in (data / "corpus.jsonl").read_text().splitlines()]
    records[3]["parent"] = records[8]["parent"] = "p"
    (data / "corpus.jsonl").write_text("".join(json.dumps(item) + "\n" for item in records))
    queries, wording = compared(data, encoder)
    assert [queries[item.row].id for item in wording.repeated] == ["q5"]


QUERIES = [LabelledQuery(f"q {at}", "text", {at: 1}) for at in range(100)]


def repeated(count: int, *, labelled: bool) -> Wording:
    return Wording(np.arange(0), [RepeatedAnswer(row, row, row + 100, labelled) for row in range(count)])


@pytest.mark.parametrize(
    ("wording", "words"),
    [
        (Wording(np.arange(9), []), None),
        (Wording(np.arange(10), []), "10 of 100 queries copy sentences of their document, such as query 'q 0'"),
        (repeated(2, labelled=False), None),
        (repeated(3, labelled=False), "3 of 100 queries have an answer that another document repeats"),
        (repeated(50, labelled=True), None),
    ],
)
def test_wording_warnings_begin_at_limits(wording: Wording, words: str | None) -> None:
    result = wording_warnings(wording, QUERIES, np.ones(100))
    assert (words is None) == (result == [])
    assert words is None or result[0].startswith(words)


def test_copy_warning_compares_accuracy() -> None:
    accuracy = np.repeat([1.0, 0.5], [20, 80])
    (message,) = wording_warnings(Wording(np.arange(20), []), QUERIES, accuracy)
    assert "(accuracy 1.00, others 0.50)" in message
    (all_of_them,) = wording_warnings(Wording(np.arange(100), []), QUERIES, accuracy)
    assert "others" not in all_of_them
