"""What the retrievers of all frameworks share: the stricter cut, and the metadata of a passage."""

import math

import pytest

from taugate_client import Drift, Result, SearchResponse, TaugateClient
from taugate_client.retrieval import Retrieval, metadata, tighten


def result(score: float, /, **metadata: object) -> Result:
    return Result("c1", "d1", 1, score, None, False, None, "text", metadata)


def reply(*scores: float) -> SearchResponse:
    results = tuple(result(score) for score in scores)
    return SearchResponse(
        results, 0.3, "similarity", True, "calibrated", 5, 5 - len(results), 0.9,
        None if results else "unanswerable", "r1", Drift(False, ()), "q1",
    )  # fmt: skip


@pytest.mark.parametrize("threshold", [None, 0, 0.0, 0.1, 0.5])
def test_a_threshold_at_or_below_every_score_changes_nothing(threshold: float | None) -> None:
    found = reply(0.9, 0.5)
    assert tighten(found, threshold) is found
    assert tighten(reply(), threshold).reason == "unanswerable", "nothing to drop, and the reason stays"


def test_a_higher_threshold_drops_and_says_so() -> None:
    some = tighten(reply(0.9, 0.5), 0.6)
    assert ([each.score for each in some.results], some.dropped, some.reason) == ([0.9], 4, None)
    none = tighten(reply(0.9, 0.5), 0.95)
    assert (none.results, none.dropped, none.reason) == ((), 5, "all_below_threshold")


def test_no_retriever_asks_for_results_below_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def answer(self: TaugateClient, query: str, **options: object) -> SearchResponse:
        asked.append({"query": query, **options})
        return reply(0.9)

    monkeypatch.setattr(TaugateClient, "search", answer)
    Retrieval("http://h").search("q", k=3, filter={"year": 2020})
    assert asked == [{"query": "q", "explore": False, "k": 3, "filter": {"year": 2020}}]


@pytest.mark.parametrize("threshold", [-0.1, math.nan])
def test_no_threshold_can_loosen(threshold: float) -> None:
    with pytest.raises(ValueError, match="tighten"):
        tighten(reply(0.9), threshold)


def test_no_field_of_a_document_is_lost_to_ours() -> None:
    fields = metadata(reply(), result(0.9, score="five stars", year=2020))
    assert (fields["score"], fields["document.score"], fields["year"]) == (0.9, "five stars", 2020)
    assert (fields["query_id"], fields["release"], fields["calibration"]) == ("q1", "r1", "calibrated")
    assert fields["truncated"] is False
    assert "title" not in fields
