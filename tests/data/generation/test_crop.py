"""Queries by cropping, compared with the recipe, and the files of the data set."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.data.beir import read_dataset
from taugate.data.generation.generate import crop, generate_crops, sample_documents
from taugate.data.questions import QuestionRule
from taugate.errors import InputError

WORDS = [f"w{number}" for number in range(200)]
TEXT = " ".join(WORDS)


@given(seed=st.integers(0, 2**31), words=st.integers(0, 60))
def test_crop_is_span_with_deleted_words(seed: int, words: int) -> None:
    query = crop(" ".join(WORDS[:words]), "d", seed).split()
    places = [WORDS.index(item) for item in query]
    assert places == sorted(set(places))
    assert len(query) <= words / 2
    if places:
        assert places[-1] - places[0] < words / 2


def test_crop_shares_match_the_recipe() -> None:
    crops = [crop(TEXT, str(number), 0).split() for number in range(4000)]
    lengths = np.array([len(item) for item in crops]) / len(WORDS)
    # The mean of a uniform share of .1 to .5, less a tenth of the words; .0975 is the mean of int() rounding it down.
    assert lengths.mean() == pytest.approx((0.3 - 0.5 / len(WORDS)) * 0.9, abs=0.006)
    places = [[WORDS.index(word) for word in item] for item in crops]
    spans = np.array([item[-1] - item[0] + 1 for item in places])
    assert 1 - lengths.sum() * len(WORDS) / spans.sum() == pytest.approx(0.1, abs=0.01)
    assert min(item[0] for item in places) == 0
    assert max(item[-1] for item in places) == len(WORDS) - 1


def test_crop_span_in_words_is_respected() -> None:
    crops = [crop(TEXT, str(number), 0, (5, 20)).split() for number in range(4000)]
    places = [[WORDS.index(word) for word in item] for item in crops if item]
    spans = np.array([item[-1] - item[0] + 1 for item in places])
    assert spans.max() == 20
    assert np.mean([len(item) for item in crops]) == pytest.approx(12.5 * 0.9, abs=0.2)
    assert {len(crop("a b c d e f", str(number), 0, (5, 20)).split()) for number in range(50)} <= {0, 1, 2, 3}


def test_documents_have_independent_random_numbers() -> None:
    assert crop(TEXT, "a", 0) == crop(TEXT, "a", 0)
    assert len({crop(TEXT, "a", 0), crop(TEXT, "b", 0), crop(TEXT, "a", 1)}) == 3


@pytest.mark.parametrize(
    "text", ["数据库系统的查询优化器选择执行计划" * 3, "การค้นหาข้อมูลในฐานข้อมูล" * 3, "データベースの検索" * 5]
)
def test_unspaced_languages_are_cropped_by_letters(text: str) -> None:
    queries = [crop(text, str(number), 0) for number in range(20)]
    assert any(queries)
    assert all(" " not in query and len(query) < len(text) / 2 + 1 for query in queries)
    assert not any(query.startswith(("\u0e31", "\u0e48")) for query in queries)  # no mark without its letter


def write(folder: Path, texts: list[str], queries: str = "") -> Path:
    """Write a corpus, and a file of queries if there are any."""
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"_id": f"d{number}", "text": text}) + "\n" for number, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("".join(lines))
    if queries:
        (folder / "queries.jsonl").write_text(queries)
    return folder


def documents(count: int) -> list[str]:
    return [" ".join(f"d{number}w{word}" for word in range(30)) for number in range(count)]


def test_crops_are_judged_relevant_to_their_passage(tmp_path: Path) -> None:
    data = write(tmp_path / "data", documents(20))
    result = generate_crops(data, 100, 0)
    (tmp_path / "spool").mkdir()
    dataset = read_dataset(data, "generated", tmp_path / "spool")
    assert result.kept == len(dataset.answerable) == 20
    for query in dataset.answerable:
        (position,) = query.relevant
        assert query.origin == "crop"
        assert query.id == f"crop:d{position}"
        assert query.text.startswith(f"d{position}w")


def test_human_queries_kept_and_crops_replaced(tmp_path: Path) -> None:
    human = '{ "_id": "crop:d1",  "text": "Who?" }\n{"_id":"h2","text":"d0w1"}'
    data = write(tmp_path / "data", documents(5), human)
    generate_crops(data, 100, 0)
    first = (data / "queries.jsonl").read_text()
    assert first.startswith(human + "\n")
    assert '"crop:d1\'"' in first
    generate_crops(data, 100, 1)
    second = (data / "queries.jsonl").read_text()
    assert second.startswith(human + "\n")
    assert second != first
    assert second.count("\n") == first.count("\n") == 7
    generate_crops(data, 100, 0)
    assert (data / "queries.jsonl").read_text() == first


def test_judgements_of_questions_are_kept(tmp_path: Path) -> None:
    data = write(tmp_path / "data", documents(3), '{"_id":"x","text":"What is d0?","origin":"llm"}\n')
    (data / "qrels").mkdir()
    (data / "qrels" / "generated.tsv").write_text("query-id\tcorpus-id\tscore\nx\td0\t1\n")
    generate_crops(data, 100, 0)
    rows = (data / "qrels" / "generated.tsv").read_text().splitlines()
    assert rows[:2] == ["query-id\tcorpus-id\tscore", "x\td0\t1"]
    assert len(rows) == 5


def test_documents_without_query_are_counted(tmp_path: Path) -> None:
    data = write(tmp_path / "data", ["one", *documents(1), *documents(1)])
    (data / "queries.jsonl").write_text(json.dumps({"_id": "h", "text": crop(documents(1)[0], "d1", 0).upper()}) + "\n")
    result = generate_crops(data, 100, 0)
    assert (result.kept, result.lost.empty, result.lost.duplicate, result.documents) == (1, 1, 1, 3)


def test_sample_does_not_depend_on_order(tmp_path: Path) -> None:
    texts = documents(50)
    one = write(tmp_path / "one", texts)
    generate_crops(one, 10, 0)
    other = tmp_path / "other"
    other.mkdir()
    lines = (one / "corpus.jsonl").read_text().splitlines(keepends=True)
    (other / "corpus.jsonl").write_text("".join(reversed(lines)))
    generate_crops(other, 10, 0)
    read = [sorted((item / "queries.jsonl").read_text().splitlines()) for item in (one, other)]
    assert read[0] == read[1]
    assert len(read[0]) == 10


def test_crop_ids_never_collide(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    texts = {"a": documents(1)[0], "a'": documents(2)[1]}  # the first would be named as the second, too
    lines = [json.dumps({"_id": name, "text": text}) + "\n" for name, text in texts.items()]
    (data / "corpus.jsonl").write_text("".join(lines))
    (data / "queries.jsonl").write_text('{"_id":"crop:a","text":"Who?"}\n')
    assert generate_crops(data, 10, 0).kept == 2
    (tmp_path / "spool").mkdir()
    assert len(read_dataset(data, "generated", tmp_path / "spool").answerable) == 2


def test_unreadable_judgements_change_nothing(tmp_path: Path) -> None:
    data = write(tmp_path / "data", documents(3), '{"_id":"h","text":"Who?"}\n')
    (data / "qrels").mkdir()
    (data / "qrels" / "generated.tsv").write_bytes(b"query-id\tcorpus-id\tscore\n\xff\td0\t1\n")
    with pytest.raises(InputError, match="generated.tsv:2: byte 0xff"):
        generate_crops(data, 100, 0)
    assert (data / "queries.jsonl").read_text() == '{"_id":"h","text":"Who?"}\n'


@pytest.mark.parametrize("most", [0, -1])
def test_sample_of_no_document_refused(tmp_path: Path, most: int) -> None:
    with pytest.raises(InputError, match=f"--max {most}: give a number of documents"):
        generate_crops(write(tmp_path / "data", documents(3)), most, 0)


def test_short_documents_write_nothing(tmp_path: Path) -> None:
    data = write(tmp_path / "data", ["one", "two"])
    with pytest.raises(InputError, match="no document is long enough to crop a query from"):
        generate_crops(data, 100, 0)
    assert not (data / "queries.jsonl").exists()
    assert not (data / "qrels").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [4, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_killed_run_leaves_readable_data_set(kills: int, tmp_path: Path) -> None:
    data = write(tmp_path / "data", documents(3000))
    generate_crops(data, 5000, 0)
    code = f"import sys, pathlib; from {generate_crops.__module__} import generate_crops as run"
    command = [sys.executable, "-c", f"{code}; run(pathlib.Path({str(data)!r}), 5000, int(sys.argv[1]))"]
    started = time.monotonic()
    subprocess.run([*command, "1"], check=True, capture_output=True)
    complete = time.monotonic() - started
    rng = np.random.default_rng(0)
    for number in range(kills):
        with subprocess.Popen(
            [*command, str(number + 2)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as child:
            time.sleep(float(rng.uniform(0.3, 1.0)) * complete)
            os.kill(child.pid, signal.SIGKILL)
        spool = tmp_path / f"spool{number}"
        spool.mkdir()
        assert len(read_dataset(data, "generated", spool).answerable) >= 2990  # all words of a short span may go


def test_crops_of_removed_documents_name_remedy(tmp_path: Path) -> None:
    data = write(tmp_path / "data", documents(5))
    generate_crops(data, 100, 0)
    write(data, documents(3))
    (tmp_path / "spool").mkdir()
    with pytest.raises(
        InputError, match=r"generated\.tsv:5: document 'd3' is not in corpus\.jsonl; make the queries again"
    ):
        read_dataset(data, "generated", tmp_path / "spool")


def test_share_of_chunks_limits_each_document(tmp_path: Path) -> None:
    chunks = [{"_id": f"long {at}", "parent": "long", "text": TEXT} for at in range(10)]
    lines = [*chunks, {"_id": "short", "text": TEXT}]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    sampled, total = sample_documents(tmp_path / "corpus.jsonl", 100, 0, 0.3)
    assert total == 11
    assert len([source for source in sampled if source.identifier.startswith("long")]) == 3
    assert "short" in {source.identifier for source in sampled}
    assert sampled == [source for source in sample_documents(tmp_path / "corpus.jsonl", 100, 0)[0] if source in sampled]


TEXTS = {
    "English": "The threshold of a release is chosen by the calibration, and it is in the manifest for all to read.",
    "German": "Der Schwellenwert wird von der Kalibrierung gewählt und ist in dem Manifest für alle zu lesen.",
    "French": "Le seuil est choisi par la calibration et il est dans le manifeste pour les lecteurs, avec des preuves.",
    "Spanish": "El umbral se elige en la calibración y es parte del manifiesto para que los lectores lo vean.",
    "Italian": "La soglia è scelta con la calibrazione, e si legge nel manifesto che è per una sola versione dei dati.",
    "Portuguese": "O limiar é escolhido na calibração e está no manifesto, para que os leitores o vejam com as provas.",
    "Dutch": "De drempel wordt bij de kalibratie gekozen en is in het manifest te lezen, niet voor een enkele versie.",
    "Chinese": "阈值由校准选择,并写入清单,供所有人阅读。",
    "Japanese": "しきい値はキャリブレーションによって選ばれ、マニフェストに書かれます。",
    "Korean": "임계값은 보정으로 선택되며 매니페스트에 기록됩니다.",
    None: "Próg jest wybierany podczas kalibracji i zapisywany w manifeście wydania.",
}


@pytest.mark.parametrize("language", TEXTS, ids=str)
def test_corpus_language_is_recognized(language: str | None) -> None:
    rule = QuestionRule.for_texts([TEXTS[language]])
    assert rule.language == language
    assert rule.name.startswith(language or "unknown language: any text")


@pytest.mark.parametrize(
    ("language", "question", "other"),
    [
        ("English", "how is the threshold chosen", "The threshold is chosen by the calibration."),
        ("English", "In which year was Riga founded?", "In 1973 the fleet grew."),
        ("English", "What’s the threshold", "Describe the threshold"),
        ("German", "Wie wird der Schwellenwert gewählt", "Der Schwellenwert wird gewählt."),
        ("French", "Comment le seuil est-il choisi", "Le seuil est choisi."),
        ("Spanish", "¿Cómo se elige el umbral", "El umbral se elige."),
        ("Italian", "Come si sceglie la soglia", "La soglia è scelta."),
        ("Portuguese", "Qual é o limiar", "O limiar é escolhido."),
        ("Dutch", "Hoe wordt de drempel gekozen", "De drempel wordt gekozen."),
        ("Chinese", "阈值是怎样选择的", "阈值由校准选择。"),
        ("Chinese", "阈值由校准选择？", "写入清单。"),
        ("Japanese", "しきい値はどのように選ばれますか", "しきい値は選ばれます。"),
        ("Korean", "임계값은 어떻게 선택됩니까", "임계값은 보정으로 선택됩니다."),
    ],
)
def test_questions_are_distinguished_from_statements(language: str, question: str, other: str) -> None:
    rule = QuestionRule(language)
    assert rule.holds(question)
    assert not rule.holds(other)


@pytest.mark.parametrize(
    "text", ["Jak wybierany jest próg", "ما هو الحد؟", "โปรแกรมเลือกค่าอย่างไร", "Ποιο είναι το όριο;"]
)
def test_unknown_languages_lose_nothing(text: str) -> None:
    assert QuestionRule.for_texts([text]).holds(text)


def test_corpus_without_words_has_no_rule() -> None:
    assert QuestionRule.for_texts(["123", "%%%"]).language is None
    assert QuestionRule.for_texts([]).language is None
    assert not QuestionRule("English").holds("…")
