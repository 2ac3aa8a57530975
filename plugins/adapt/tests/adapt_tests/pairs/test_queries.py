"""Where training queries come from, and what the record says of them."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.data.beir import Dataset, read_dataset
from taugate.data.generation.generate import FILE, generate_crops, read_accounting
from taugate.data.judgements import HEADER
from taugate.data.labelled_queries import LabelledQuery
from taugate.errors import InputError
from taugate_adapt.pairs import TRAIN, UNSEEN, VALIDATION, AdaptationQueries, CorpusParts, HardNegatives, PairedTexts


def dataset(folder: Path, origins: list[str], split: str = "test") -> Dataset:
    """A document of twelve words for each query, which asks for it by half of them."""
    data = folder / "data"
    (data / "qrels").mkdir(parents=True)
    texts = [" ".join(f"word{row}x{place}" for place in range(12)) for row in range(len(origins))]
    lines = {
        "corpus.jsonl": [{"_id": f"d{row}", "text": text} for row, text in enumerate([*texts, "short"])],
        "queries.jsonl": [
            {"_id": f"q{row}", "text": text[: len(text) // 2], "origin": origin}
            for row, (text, origin) in enumerate(zip(texts, origins, strict=True))
        ],
    }
    for name, records in lines.items():
        (data / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    rows = ["query-id\tcorpus-id\tscore", *(f"q{row}\td{row}\t1" for row in range(len(origins)))]
    (data / "qrels" / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    (folder / "spool").mkdir()
    return read_dataset(data, split, folder / "spool")


def test_few_labels_are_filled_with_crops(tmp_path: Path) -> None:
    data = dataset(tmp_path, ["human"] * 200)
    queries = AdaptationQueries.collect(data, data, seed=0)
    record = queries.record
    assert record.source == "labels and crops"
    assert record.origins["human"] == 100
    assert record.origins["crop"] == len(queries.train) - 100 > 50
    assert {query.origin for query in [*queries.validation, *queries.unseen]} == {"human"}
    learned = {document for query in queries.train for document in query.relevant}
    held_back = {document for query in [*queries.validation, *queries.unseen] for document in query.relevant}
    assert not learned & held_back


def test_many_labels_need_no_crops(tmp_path: Path) -> None:
    data = dataset(tmp_path, ["human"] * 520)
    record = AdaptationQueries.collect(data, data, seed=0).record
    assert (record.source, record.origins, record.lost) == ("labels", {"human": 260}, None)


def test_generated_queries_decide_without_human(tmp_path: Path) -> None:
    data = dataset(tmp_path, ["llm", "crop"] * 100)
    queries = AdaptationQueries.collect(data, data, 0, {"round_trip": 7})
    assert queries.evidence == "generated"
    assert queries.record.source == "generated"
    assert sum(queries.record.origins.values()) == 100
    assert set(queries.record.origins) == {"crop", "llm"}
    assert queries.record.lost == {"round_trip": 7}


def test_crops_count_short_documents(tmp_path: Path) -> None:
    data = dataset(tmp_path, ["human"] * 200)
    record = AdaptationQueries.collect(data, None, seed=0).record
    assert (record.source, record.split) == ("crops", None)
    assert set(record.lost or {}) == {"empty"}


def test_crops_have_question_length(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "qrels").mkdir(parents=True)
    rows = range(200)
    text = " ".join(f"word{place}" for place in range(400))
    for name, records in {
        "corpus.jsonl": [{"_id": f"d{row}", "text": text} for row in rows],
        "queries.jsonl": [{"_id": f"q{row}", "text": "word7"} for row in rows],
    }.items():
        (data / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    (data / "qrels" / "test.tsv").write_text("\n".join([HEADER, *(f"q{row}\td{row}\t1" for row in rows)]) + "\n")
    (tmp_path / "spool").mkdir()
    queries = AdaptationQueries.collect(read_dataset(data, "test", tmp_path / "spool"), None, seed=0)
    lengths = [len(query.text.split()) for query in [*queries.train, *queries.validation]]
    assert max(lengths) == 20
    assert sum(lengths) / len(lengths) == pytest.approx(12.5 * 0.9, abs=1.5)


def test_crops_write_an_account(tmp_path: Path) -> None:
    dataset(tmp_path, ["human"] * 3)
    generate_crops(tmp_path / "data", 10, 0)
    account = read_accounting(tmp_path / "data")["crop"]
    assert (account.kept, account.lost["empty"], account.model) == (3, 1, None)


def test_damaged_account_is_refused(tmp_path: Path) -> None:
    assert read_accounting(tmp_path) == {}
    (tmp_path / FILE).write_text("[]")
    with pytest.raises(InputError, match=r"generated\.json: not the account that taugate queries wrote; remove it"):
        read_accounting(tmp_path)


# Of each pair the first answers the query, and so does the copy, which has no label.
TEXTS = [
    "the roof is tiled in spring",
    "the roof is tiled in early spring",
    "gardens need water in summer",
    "tiles of clay and of stone",
    "a bill is paid in thirty days",
    "nothing about it",
]
QUERY = "when is the roof tiled"
RNG = np.random.default_rng(0)


def units(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def vectors(*similarities: float) -> np.ndarray:
    """Documents with these similarities to the query, which is the first axis."""
    return np.array([[item, (1 - item**2) ** 0.5] for item in similarities], dtype=np.float32)


def mined(similarities: tuple[float, ...], relevant: list[int], count: int = 2) -> HardNegatives:
    query = np.array([[1, 0]], dtype=np.float32)
    documents = vectors(*similarities)
    return PairedTexts(query, [QUERY], [np.array(relevant)], documents, TEXTS).mine(count, np.random.default_rng(0))


def test_unlabelled_answer_is_excluded() -> None:
    result = mined((0.7, 0.72, 0.6, 0.5, 0.4, 0.3), [0])
    assert [item.tolist() for item in result.suspects] == [[]], "it is longer, so that BM25 has it below the answer"
    result = mined((0.7, 0.72, 0.6, 0.5, 0.4, 0.3), [1])
    assert [item.tolist() for item in result.suspects] == [[0]]
    assert result.positions.tolist() == [[2, 3]]


def test_encoder_only_match_is_hardest_negative() -> None:
    result = mined((0.5, 0.48, 0.9, 0.8, 0.4, 0.3), [1])
    assert result.positions.tolist() == [[2, 3]]
    assert [item.tolist() for item in result.suspects] == [[0]]


def test_bm25_only_match_is_negative() -> None:
    result = mined((0.5, 0.9, 0.3, 0.2, 0.1, 0.0), [1])
    assert result.positions.tolist() == [[0, 2]]
    assert [item.tolist() for item in result.suspects] == [[]]


def test_no_negatives_if_all_documents_answer() -> None:
    assert mined((0.9, 0.8, 0.7, 0.6, 0.5, 0.4), [0, 1, 2, 3, 4, 5]).positions.tolist() == [[-1, -1]]


def test_random_documents_fill_negatives() -> None:
    result = mined((0.9, 0.8, 0.7, 0.6, 0.5, 0.4), [0, 1, 2, 3], count=5)
    assert result.positions[0, :2].tolist() == [4, 5]
    assert set(result.positions[0].tolist()) == {4, 5}


@given(st.integers(1, 60), st.integers(1, 6), st.integers(0, 1000))
def test_answers_and_suspects_are_no_negatives(size: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    documents, queries = units(rng.standard_normal((size, 4))), units(rng.standard_normal((5, 4)))
    texts = [" ".join(rng.choice(["roof", "tile", "bill", "water"], 4)) for _ in range(size + 5)]
    relevant = [np.sort(rng.permutation(size)[: rng.integers(1, size + 1)]) for _ in range(5)]
    pairs = PairedTexts(queries, texts[size:], relevant, documents, texts[:size])
    once, again = (pairs.mine(count, np.random.default_rng(1)) for _ in range(2))
    assert once.positions.tobytes() == again.positions.tobytes()
    assert once.positions.shape == (5, count)
    for positions, suspects, answers in zip(once.positions, once.suspects, relevant, strict=True):
        assert not np.isin(positions, answers).any()
        assert not np.isin(suspects, answers).any()
        hard = positions[: max(0, min(count, min(size, 50) - len(answers) - len(suspects)))]
        assert not np.isin(hard, suspects).any()
        assert (positions < 0).all() == (len(answers) == size)


def asking(*documents: tuple[int, ...]) -> list[LabelledQuery]:
    return [LabelledQuery(f"q{number}", "text", dict.fromkeys(item, 1)) for number, item in enumerate(documents)]


EACH = asking(*((position,) for position in range(200)))


def test_shared_split_is_divided_by_queries() -> None:
    parts = CorpusParts.divide(200, None, EACH, EACH, seed=0)
    assert [len(parts.queries(part, EACH)) for part in (TRAIN, VALIDATION, UNSEEN)] == [100, 30, 70]


def test_parts_depend_on_seed() -> None:
    first, again, other = (CorpusParts.divide(200, None, EACH, EACH, seed).part for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_chunks_and_answers_stay_together() -> None:
    parents = (np.arange(200) // 4 * 4).astype(np.int32)
    queries = asking(*((4 * number, 4 * number + 4) for number in range(0, 48, 2)))
    part = CorpusParts.divide(200, parents, queries, queries, seed=0).part
    assert np.array_equal(part, part[parents])
    assert all(len(set(part[list(query.relevant)])) == 1 for query in queries)
    assert set(part) == {TRAIN, VALIDATION, UNSEEN}


def test_separate_splits_use_separate_documents() -> None:
    parts = CorpusParts.divide(200, None, EACH[:100], EACH[100:], seed=0)
    assert set(parts.part[:100]) == {TRAIN, VALIDATION}
    assert set(parts.part[100:]) == {UNSEEN}


@pytest.mark.parametrize("labelled", [40, 200])
def test_labelled_documents_are_unseen_first(labelled: int) -> None:
    parts = CorpusParts.divide(200, None, [], EACH[:labelled], seed=0)
    assert len(parts.passages(UNSEEN)) == 70
    assert len(parts.passages(VALIDATION)) == 30
    assert len(parts.queries(UNSEEN, EACH[:labelled])) == min(labelled, 70)


@st.composite
def corpora(draw: st.DrawFn) -> tuple[int, np.ndarray | None, list[LabelledQuery], list[LabelledQuery]]:
    """A corpus in chunks or not, with queries of one split or of two, some of which have several answers."""
    passages = draw(st.integers(3, 60))
    parents = None
    if draw(st.booleans()):
        starts = sorted({0, *draw(st.sets(st.integers(0, passages - 1), max_size=passages))})
        firsts = np.array(starts)[np.searchsorted(starts, np.arange(passages), side="right") - 1]
        parents = firsts.astype(np.int32)
    documents = range(passages) if parents is None else sorted(set(parents.tolist()))
    answers = st.lists(st.sampled_from(documents), min_size=1, max_size=3, unique=True)
    evaluation = asking(*map(tuple, draw(st.lists(answers, min_size=1, max_size=30))))
    same = draw(st.booleans())
    train = evaluation if same else asking(*map(tuple, draw(st.lists(answers, max_size=30))))
    return passages, parents, train, evaluation


@given(corpora(), st.integers(0, 1000))
def test_parts_divide_no_document(
    corpus: tuple[int, np.ndarray | None, list[LabelledQuery], list[LabelledQuery]], seed: int
) -> None:
    passages, parents, train, evaluation = corpus
    parts = CorpusParts.divide(passages, parents, train, evaluation, seed)
    assert parts.part.shape == (passages,)
    assert set(parts.part.tolist()) <= {TRAIN, VALIDATION, UNSEEN}
    if parents is not None:
        assert np.array_equal(parts.part, parts.part[parents]), "all chunks of a document are in one part"
    for query in [*train, *evaluation]:
        assert len(set(parts.part[list(query.relevant)].tolist())) == 1, "and so are all answers of a query"
    documents = [
        {document for query in parts.queries(part, queries) for document in query.relevant}
        for part, queries in ((TRAIN, train), (VALIDATION, train), (UNSEEN, evaluation))
    ]
    assert not (documents[0] & documents[1] or documents[0] & documents[2] or documents[1] & documents[2])
    counted = [len(parts.queries(part, train)) for part in (TRAIN, VALIDATION, UNSEEN)]
    assert sum(counted) == len(train), "no query is lost"
