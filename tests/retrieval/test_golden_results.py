"""Golden questions of a run: their file, and what they notice."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.gate import ScoredResult
from taugate.retrieval.golden import GoldenResults, compare, grown_store, read_golden_results, write_golden_results


def questions(seed: int = 0) -> list[GoldenResults]:
    rng = np.random.default_rng(seed)
    return [
        GoldenResults(
            f"q{number}",
            None,
            [
                ScoredResult(f"d{number}-{place}", score, {"bm25": 10 * score})
                for place, score in enumerate(sorted(rng.uniform(0.2, 0.9, 5).tolist(), reverse=True))
            ],
        )
        for number in range(16)
    ]


def live(golden: list[GoldenResults]) -> dict[str, list[ScoredResult]]:
    return {question.query_id: question.results for question in golden}


def test_written_questions_are_read_again(tmp_path: Path) -> None:
    write_golden_results(tmp_path / "golden.jsonl", questions())
    assert read_golden_results(tmp_path / "golden.jsonl") == questions()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}\n",
        b"[]\n",
        b'{"query_id": "q", "query": null, "results": []}\n',
        b'{"query_id": "q", "query": null, "results": [{"id": "d", "score": 1e39, "scores": {}}]}\n',
        b'{"query_id": "q", "query": null, "results": [{"id": "d", "score": "1", "scores": {}}]}\n',
    ],
)
def test_invalid_content_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "golden.jsonl").write_bytes(content)
    with pytest.raises(ReleaseError, match="does not hold golden questions"):
        read_golden_results(tmp_path / "golden.jsonl")


@pytest.mark.parametrize(("changed", "objects"), [(3, False), (5, True)])
def test_quarter_of_moved_scores_is_another_retriever(changed: int, *, objects: bool) -> None:
    golden = questions()
    moved = [
        replace(question, results=[replace(result, score=result.score + 0.3) for result in question.results])
        for question in golden[:changed]
    ]
    deviation = compare(golden, live(golden) | live(moved))
    assert (deviation.objection is not None) == objects


def test_component_that_moves_is_named() -> None:
    golden = questions()
    moved = [
        replace(
            question,
            results=[replace(result, scores={"bm25": result.scores["bm25"] + 1}) for result in question.results],
        )
        for question in golden
    ]
    assert (compare(golden, live(moved)).objection or "").startswith("scores bm25 moved by 1 (tolerance ")


def test_equal_recorded_scores_tolerate_rounding_only() -> None:
    golden = [GoldenResults("q", "text", [ScoredResult(str(place), 0.5, {}) for place in range(5)])]
    for factor, alike in ((1 + 1e-8, True), (1 + 1e-6, False)):
        results = {"q": [replace(result, score=factor * 0.5) for result in golden[0].results]}
        assert (compare(golden, results).objection is None) == alike


def test_results_that_cannot_be_cut_are_refused() -> None:
    golden = questions()
    with pytest.raises(InputError, match="'q0' are missing"):
        compare(golden, {})
    with pytest.raises(InputError, match="is not a finite number"):
        compare(golden, live(golden) | {"q0": [ScoredResult("d", float("nan"), {})]})


def test_grown_store_answers_more_than_promised() -> None:
    """Of four unanswerable questions one had a result at the calibration; one in ten was promised."""
    golden = [
        GoldenResults(f"u{row}", None, [ScoredResult("d", 0.1 * row, None)], unanswerable=True) for row in range(4)
    ]
    refusal = Mock(limits=Mock(answered=Mock(asked=0.1)))
    gate = Mock(
        manifest=Mock(refusal=refusal),
        cut=lambda results: Mock(results=[result for result in results if result.score > 0.25]),
    )
    assert grown_store(golden, live(golden), gate) is None
    grown = {question.query_id: [ScoredResult("new", 0.9, None)] for question in golden[:2]}
    assert "3 of 4 unanswerable questions get a result, 1 at" in str(grown_store(golden, live(golden) | grown, gate))
    assert grown_store(golden, live(golden) | grown, Mock(manifest=Mock(refusal=None))) is None


def test_grown_store_answers_off_topic_questions_that_rho_refused() -> None:
    """ρ was stated to refuse nine in ten questions of the worse kind."""
    golden = [GoldenResults(f"o{row}", None, [ScoredResult("d", 0.1, None)], unanswerable=True) for row in range(10)]
    refusal = Mock(limits=None, evidence={"off_topic": Mock(lower=0.95), "request": Mock(lower=0.9)})
    gate = Mock(
        manifest=Mock(refusal=refusal),
        cut=lambda results: Mock(results=[result for result in results if result.score > 0.25]),
    )
    grown = [{question.query_id: [ScoredResult("new", 0.9, None)] for question in golden[:count]} for count in (1, 2)]
    assert grown_store(golden, live(golden) | grown[0], gate) is None
    assert str(grown_store(golden, live(golden) | grown[1], gate)).startswith("2 of 10 off-topic questions and short")


def test_unanswerable_questions_do_not_move_scores() -> None:
    golden = questions()
    longer = [*golden, GoldenResults("u", None, [ScoredResult("d", 0.1, None)], unanswerable=True)]
    assert compare(longer, live(golden) | {"u": []}).recorded == compare(golden, live(golden)).recorded
