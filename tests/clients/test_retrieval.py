"""Shared parts of the retrievers: the stricter threshold, and the metadata of a passage."""

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
def test_low_threshold_changes_nothing(threshold: float | None) -> None:
    found = reply(0.9, 0.5)
    assert tighten(found, threshold) is found
    assert tighten(reply(), threshold).reason == "unanswerable", "nothing to drop, and the reason stays"


def test_higher_threshold_drops_and_counts() -> None:
    some = tighten(reply(0.9, 0.5), 0.6)
    assert ([each.score for each in some.results], some.dropped, some.reason) == ([0.9], 4, None)
    none = tighten(reply(0.9, 0.5), 0.95)
    assert (none.results, none.dropped, none.reason) == ((), 5, "all_below_threshold")


def test_retrieval_turns_exploration_off(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def answer(self: TaugateClient, query: str, **options: object) -> SearchResponse:
        asked.append({"query": query, **options})
        return reply(0.9)

    monkeypatch.setattr(TaugateClient, "search", answer)
    Retrieval("http://h").search("q", k=3, filter={"year": 2020})
    assert asked == [{"query": "q", "explore": False, "k": 3, "filter": {"year": 2020}}]


@pytest.mark.parametrize("threshold", [-0.1, math.nan])
def test_negative_threshold_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="tighten"):
        tighten(reply(0.9), threshold)


def test_metadata_keeps_conflicting_document_fields() -> None:
    fields = metadata(reply(), result(0.9, score="five stars", year=2020))
    assert (fields["score"], fields["document.score"], fields["year"]) == (0.9, "five stars", 2020)
    assert (fields["query_id"], fields["release"], fields["calibration"]) == ("q1", "r1", "calibrated")
    assert fields["truncated"] is False
    assert "title" not in fields
