"""The benchmarks of adaptation: changed data sets, pages that are joined, and verdicts on what the paper says."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import orjson
import pytest

from benchmarks.adapt import labels_long
from benchmarks.adapt.changed_sets import by_paper, fewer_documents, labels_of_another, shuffled_labels
from benchmarks.adapt.paper import JudgedSet, Outcomes, verdict
from benchmarks.adapt.tables import PAGE
from benchmarks.adapt.trials import Trial
from taugate.ingestion.dataset.beir import read_dataset
from taugate.retrieval.release.evidence import Interval


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Twenty documents, each with a question of its own, and another set with fewer questions beside it."""
    for name, count in (("some", 20), ("squad_v2_dev", 12)):
        (tmp_path / name / "qrels").mkdir(parents=True)
        corpus = [{"_id": f"p{number // 2}_{number}", "text": f"{name} {number}"} for number in range(count)]
        queries = [{"_id": f"q{number}", "text": f"question of {name} {number}"} for number in range(count)]
        rows = [f"q{number}\tp{number // 2}_{number}\t1" for number in range(count)]
        for file, records in (("corpus", corpus), ("queries", queries)):
            (tmp_path / name / f"{file}.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in records))
        (tmp_path / name / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return tmp_path / "some"


def changed(source: Path, tmp_path: Path, change: Any, *more: int) -> Any:
    target, spool = tmp_path / "changed", tmp_path / "spool"
    (target / "qrels").mkdir(parents=True)
    spool.mkdir()
    change(source, target, *more)
    return read_dataset(target, "test", spool)


def test_shuffled_labels_are_those_of_other_queries(source: Path, tmp_path: Path) -> None:
    found = changed(source, tmp_path, shuffled_labels)
    own = [query.text.rsplit(" ", 1)[1] == str(next(iter(query.relevant))) for query in found.answerable]
    assert len(own) == 20
    assert sum(own) < 5


def test_labels_of_another_corpus_keep_the_documents_and_ask_what_they_do_not_answer(
    source: Path, tmp_path: Path
) -> None:
    found = changed(source, tmp_path, labels_of_another)
    assert len(found.documents) == 20
    assert [query.text for query in found.answerable] == [f"question of squad_v2_dev {number}" for number in range(12)]


def test_fewer_documents_keep_the_queries_that_they_answer(source: Path, tmp_path: Path) -> None:
    found = changed(source, tmp_path, fewer_documents, 7)
    assert len(found.documents) == len(found.answerable) == 7
    for query in found.answerable:
        (position,) = query.relevant
        assert query.text.rsplit(" ", 1)[1] == found.documents[position].text.rsplit(" ", 1)[1]


def test_chunks_of_one_paper_have_one_parent(source: Path, tmp_path: Path) -> None:
    parents = changed(source, tmp_path, by_paper).documents.parents
    assert parents is not None
    assert len(np.unique(parents)) == 10


def judged(**accuracies: np.ndarray) -> JudgedSet:
    """Hits of each encoder, two queries a document."""
    found = {name: Outcomes(cast(Any, SimpleNamespace()), hits, hits / 2) for name, hits in accuracies.items()}
    return JudgedSet(np.repeat(np.arange(200), 2), found)


def test_a_difference_is_of_the_same_documents_and_its_interval_holds_it() -> None:
    base = (np.random.default_rng(0).random(400) < 0.5).astype(float)
    better = base.copy()
    better[np.flatnonzero(base == 0)[:40]] = 1
    sets = judged(base=base, better=better)
    found = sets.difference("accuracy", "better", "base")
    assert found.mean == pytest.approx(10, abs=0.3)
    assert 0 < found.lower < 10 < found.upper < 20
    assert sets.difference("ndcg", "better", "base").mean == pytest.approx(5, abs=0.2)
    assert sets.difference("accuracy", "base", "base") == Interval(mean=0, lower=0, upper=0)


def test_the_width_is_that_of_the_papers_interval() -> None:
    hits = np.repeat([1.0, 0.0], 200)
    perfect = np.ones(400)
    found = judged(half=hits[np.random.default_rng(0).permutation(400)], perfect=perfect)
    assert found.difference("width", "half", "perfect").mean == pytest.approx(100 * 3.92 * 0.5 / 10, abs=0.1)


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [(0.1, 2.0, "confirmed"), (-2.0, -0.1, "**refuted**"), (-0.1, 0.1, "not shown"), (0.0, 1.0, "not shown")],
)
def test_a_claim_is_confirmed_or_refuted_by_an_interval_beyond_zero(lower: float, upper: float, words: str) -> None:
    assert verdict(Interval(mean=(lower + upper) / 2, lower=lower, upper=upper)) == words


def test_sections_measured_elsewhere_are_joined_and_the_others_stay(tmp_path: Path) -> None:
    first, second, page = (tmp_path / f"{name}.md" for name in ("first", "second", "page"))
    heading = {name: section.HEADING for name, section in PAGE.sections.items()}
    for path, names in ((page, ["labels", "crops"]), (first, ["crops"]), (second, ["refused"])):
        sections = [f"## {heading[name]}\n\n{path.stem} {name}\n" for name in names]
        path.write_text(f"{PAGE.title}\n\nold introduction\n\n" + "\n".join(sections))
    PAGE.join([first, second], page)
    text = page.read_text()
    assert [text.index(words) for words in ("page labels", "first crops", "second refused")] == sorted(
        text.index(words) for words in ("page labels", "first crops", "second refused")
    )
    assert "page crops" not in text
    assert PAGE.introduction in text
    with pytest.raises(SystemExit, match=r"has no section of adapt\.md"):
        PAGE.join([tmp_path / "nothing.md"], page)


def long_trial(chosen: str, **gains: float) -> Trial:
    """A trial in which the validation queries liked the adapter best of the linear maps."""
    gate = [
        SimpleNamespace(candidate=name, ndcg=SimpleNamespace(candidate=0.4 + gain / 100, baseline=0.4))
        for name, gain in gains.items()
    ]
    curve = [
        SimpleNamespace(recipe=name, ndcg=ndcg) for name, ndcg in (("base", 0.9), ("whitening", 0.5), ("adapter", 0.6))
    ]
    stages = [SimpleNamespace(stage="layers", steps=256, batch=32)]
    record = SimpleNamespace(
        gate=gate, curve=curve, recipe=chosen, admitted=True, training=SimpleNamespace(stages=stages)
    )
    return Trial(cast(Any, record), 60.0, 9.5)


def test_the_long_table_compares_what_was_chosen_with_the_best_linear_map() -> None:
    row = labels_long._row("cosqa", [long_trial("layers", whitening=5.0, adapter=3.0, layers=6.0)])
    assert row[:2] == ["cosqa", "yes"]
    assert row[2:7] == ["+5.0 (+5.0 to +5.0)", "+3.0 (+3.0 to +3.0)", "+6.0 (+6.0 to +6.0)", "–", "–"]
    assert row[7:] == ["+3.0 (+3.0 to +3.0)", "layers", "layers 256 of 32", "1 of 1", "9.5"]
    assert labels_long._row("squadshifts_new_wiki", [long_trial("adapter", adapter=3.0)])[1] == "**no**"
