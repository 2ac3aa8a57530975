"""Calibrated or provisional, and whether accuracy is above chance: the limits against literal sums and known truth."""

from math import comb

import numpy as np
import pytest

from taugate.calibration.provisional import (
    AvailableEvidence,
    against_chance,
    calibration_record,
    count_generated,
    lower_limit,
)
from taugate.data.labelled_queries import LabelledQuery
from taugate.release.records import MIN_QUERIES


def hits(found: int, queries: int) -> np.ndarray:
    return np.arange(queries) < found


@pytest.mark.parametrize(("found", "queries"), [(1, 1), (3, 7), (29, 30), (50, 50)])
def test_lower_limit_equals_clopper_pearson(found: int, queries: int) -> None:
    """The accuracy with which so many hits, or more, come about once in twenty: the binomial sum, written out."""
    lower = lower_limit(found, queries)
    tail = sum(comb(queries, x) * lower**x * (1 - lower) ** (queries - x) for x in range(found, queries + 1))
    assert tail == pytest.approx(0.05)


def test_zero_hits_have_lower_limit_0() -> None:
    assert lower_limit(0, 40) == 0


def test_guessing_encoder_is_rarely_above_chance() -> None:
    """Accuracy is exactly K/N = .2; one in twenty is allowed."""
    rng, rounds = np.random.default_rng(0), 2000
    shown = sum(lower_limit(int(result), 50) > 0.2 for result in rng.binomial(50, 0.2, size=rounds))
    assert shown <= rounds * 0.05 + 2 * np.sqrt(rounds * 0.05 * 0.95)


@pytest.mark.parametrize(("queries", "state"), [(MIN_QUERIES - 1, "provisional"), (MIN_QUERIES, "calibrated")])
def test_query_count_decides_state(queries: int, state: str) -> None:
    record = calibration_record(np.ones(queries, dtype=bool), AvailableEvidence(queries, 0, documents=100, k=5))
    assert (record.state, record.human, record.generated, record.bias) == (state, queries, 0, None)
    assert record.reasons == ([] if state == "calibrated" else ["few_queries"])
    assert bool(record.because(5)) == (state == "provisional")


@pytest.mark.parametrize(("documents", "reasons"), [(5, ["few_documents"]), (6, [])])
def test_few_documents_make_release_provisional(documents: int, reasons: list[str]) -> None:
    record = calibration_record(np.ones(40, dtype=bool), AvailableEvidence(40, 0, documents, k=5))
    assert record.reasons == reasons
    assert record.accuracy.chance == 5 / documents
    assert record.chance_warning(5) is None


def test_all_reasons_are_named() -> None:
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
def test_generated_query_makes_release_provisional(human: int, generated: int, reasons: list[str], said: str) -> None:
    record = calibration_record(np.ones(human + generated, dtype=bool), AvailableEvidence(human, generated, 1000, k=5))
    assert (record.state, record.reasons) == ("provisional", reasons)
    assert (record.human, record.generated) == (human, generated)
    assert said in record.because(5)
    assert "are the fewest to rely on" not in record.because(5), "one thing to do, not two"


def test_traffic_counts_as_human() -> None:
    origins = ("human", "crop", "llm", "traffic", "crop")
    queries = [LabelledQuery(origin, "a question", {0: 1}, origin=origin) for origin in origins]
    assert count_generated(queries) == 3


def test_queries_needed_are_minimal() -> None:
    """So many copies of the set are above chance, and one fewer are not."""
    record = against_chance(8, 20, 0.3)
    assert not record.shown
    copies = record.queries_needed // 20
    assert [against_chance(8 * sets, 20 * sets, 0.3).shown for sets in (copies - 1, copies)] == [False, True]


def test_chance_accuracy_needs_no_queries() -> None:
    record = against_chance(2, 20, 0.1)
    assert (record.shown, record.queries_needed) == (False, None)


@pytest.mark.parametrize(("queries", "state"), [(40, "adjusted"), (12, "provisional")])
def test_given_threshold_makes_release_adjusted(queries: int, state: str) -> None:
    evidence = AvailableEvidence(human=queries, generated=0, documents=1000, k=5)
    assert calibration_record(np.ones(queries, dtype=bool), evidence, adjusted=True).state == state


def test_unproven_encoder_makes_release_provisional() -> None:
    evidence = AvailableEvidence(human=400, generated=0, documents=1000, k=5, encoder_unproven=True)
    record = calibration_record(np.ones(400, dtype=bool), evidence)
    assert (record.state, record.reasons, record.bias) == ("provisional", ["generated_queries"], None)
    assert "no query that a person asked has shown that it is better" in record.because(5)
    assert "generated, not asked" not in record.because(5)
