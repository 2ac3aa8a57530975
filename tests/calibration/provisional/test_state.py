"""Calibrated or provisional, and whether accuracy is above chance: the limits against literal sums and known truth."""

from math import comb

import numpy as np
import pytest

from taugate.calibration.provisional.state import (
    AvailableEvidence,
    against_chance,
    calibration_record,
    count_generated,
    lower_limit,
)
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.release.records import MIN_QUERIES


def hits(found: int, queries: int) -> np.ndarray:
    return np.arange(queries) < found


@pytest.mark.parametrize(("found", "queries"), [(1, 1), (3, 7), (29, 30), (50, 50)])
def test_the_lower_limit_is_clopper_and_pearson_s(found: int, queries: int) -> None:
    """The accuracy with which so many hits, or more, come about once in twenty: the binomial sum, written out."""
    lower = lower_limit(found, queries)
    tail = sum(comb(queries, x) * lower**x * (1 - lower) ** (queries - x) for x in range(found, queries + 1))
    assert tail == pytest.approx(0.05)


def test_without_a_hit_nothing_is_known() -> None:
    assert lower_limit(0, 40) == 0


def test_an_encoder_that_guesses_is_seldom_above_chance() -> None:
    """Accuracy is exactly K/N = .2; one in twenty is allowed."""
    rng, rounds = np.random.default_rng(0), 2000
    shown = sum(lower_limit(int(found), 50) > 0.2 for found in rng.binomial(50, 0.2, size=rounds))
    assert shown <= rounds * 0.05 + 2 * np.sqrt(rounds * 0.05 * 0.95)


@pytest.mark.parametrize(("queries", "state"), [(MIN_QUERIES - 1, "provisional"), (MIN_QUERIES, "calibrated")])
def test_the_number_of_queries_decides(queries: int, state: str) -> None:
    record = calibration_record(np.ones(queries, dtype=bool), AvailableEvidence(queries, 0, documents=100, k=5))
    assert (record.state, record.human, record.generated, record.bias) == (state, queries, 0, None)
    assert record.reasons == ([] if state == "calibrated" else ["few_queries"])
    assert bool(record.because(5)) == (state == "provisional")


@pytest.mark.parametrize(("documents", "reasons"), [(5, ["few_documents"]), (6, [])])
def test_with_no_more_documents_than_k_accuracy_proves_nothing(documents: int, reasons: list[str]) -> None:
    record = calibration_record(np.ones(40, dtype=bool), AvailableEvidence(40, 0, documents, k=5))
    assert record.reasons == reasons
    assert record.accuracy.chance == 5 / documents
    assert record.worthless(5) is None


def test_every_reason_is_said() -> None:
    record = calibration_record(np.array([True]), AvailableEvidence(1, 0, documents=3, k=3))
    assert record.reasons == ["few_queries", "few_documents"]
    assert "label 29 more" in record.because(3)
    assert "no more documents than K = 3" in record.because(3)


@pytest.mark.parametrize(
    ("human", "generated", "reasons", "said"),
    [
        (0, 400, ["generated_queries", "few_queries"], "all 400 answerable queries were generated"),
        (0, 1, ["generated_queries", "few_queries"], "the only answerable query was generated"),
        (29, 400, ["generated_queries", "few_queries"], "label 30 or more questions that people asked"),
        (30, 1, ["generated_queries"], "1 of 31 answerable queries were generated"),
        (1200, 400, ["generated_queries"], "put the 1,200 queries of people into a split of their own"),
    ],
)
def test_one_generated_query_makes_a_release_provisional(
    human: int, generated: int, reasons: list[str], said: str
) -> None:
    record = calibration_record(np.ones(human + generated, dtype=bool), AvailableEvidence(human, generated, 1000, k=5))
    assert (record.state, record.reasons) == ("provisional", reasons)
    assert (record.human, record.generated) == (human, generated)
    assert said in record.because(5)
    assert "are the fewest to rely on" not in record.because(5), "one thing to do, not two"


def test_judged_traffic_counts_as_human() -> None:
    origins = ("human", "crop", "llm", "traffic", "crop")
    queries = [LabelledQuery(origin, "a question", {0: 1}, origin=origin) for origin in origins]
    assert count_generated(queries) == 3


def test_as_many_queries_as_it_says_would_show_it() -> None:
    """So many copies of the set are above chance, and one fewer are not."""
    record = against_chance(8, 20, 0.3)
    assert not record.shown
    copies = record.queries_needed // 20
    assert [against_chance(8 * sets, 20 * sets, 0.3).shown for sets in (copies - 1, copies)] == [False, True]


def test_no_number_of_queries_shows_what_is_not_so() -> None:
    record = against_chance(2, 20, 0.1)
    assert (record.shown, record.queries_needed) == (False, None)


def test_an_encoder_that_no_query_of_people_admitted_makes_a_release_provisional() -> None:
    evidence = AvailableEvidence(human=400, generated=0, documents=1000, k=5, encoder_unproven=True)
    record = calibration_record(np.ones(400, dtype=bool), evidence)
    assert (record.state, record.reasons, record.bias) == ("provisional", ["generated_queries"], None)
    assert "no query that a person asked has shown that it is better" in record.because(5)
    assert "generated, not asked" not in record.because(5)
