"""Calibrated or provisional, and whether accuracy is above chance: the limits against literal sums and known truth."""

from math import comb

import numpy as np
import pytest

from calibration.query_set.clusters import Units
from calibration.standing import against_chance, lower_limit, standing
from retrieval.release.standing import FEWEST_QUERIES


def alone(queries: int) -> Units:
    """Each query asks for a document of its own."""
    return Units.of(np.arange(queries))


def hits(found: int, queries: int) -> np.ndarray:
    return np.arange(queries) < found


@pytest.mark.parametrize(("found", "queries"), [(1, 1), (3, 7), (29, 30), (50, 50)])
def test_the_lower_limit_is_clopper_and_pearson_s(found: int, queries: int) -> None:
    """The accuracy with which so many hits, or more, come about once in twenty: the binomial sum, written out."""
    lower = lower_limit(hits(found, queries), alone(queries))
    tail = sum(comb(queries, x) * lower**x * (1 - lower) ** (queries - x) for x in range(found, queries + 1))
    assert tail == pytest.approx(0.05)


def test_without_a_hit_nothing_is_known() -> None:
    assert lower_limit(hits(0, 40), alone(40)) == 0


def test_queries_on_one_document_count_together() -> None:
    """30 hits on three documents say next to nothing, where 30 hits on as many say that accuracy is above .9."""
    few = lower_limit(np.ones(30, dtype=bool), Units.of(np.repeat(np.arange(3), 10)))
    assert few <= 0.05 ** (1 / 3)  # three draws could not say more, were they independent
    assert lower_limit(np.ones(30, dtype=bool), alone(30)) > 0.9


@pytest.mark.parametrize(("each", "rounds"), [(1, 600), (4, 80)])
def test_an_encoder_that_guesses_is_seldom_above_chance(each: int, rounds: int) -> None:
    """Accuracy is exactly K/N = .2, of queries alone or of whole documents; one in twenty is allowed."""
    rng = np.random.default_rng(0)
    units = Units.of(np.repeat(np.arange(50), each))
    shown = sum(lower_limit(np.repeat(rng.random(50) < 0.2, each), units) > 0.2 for _ in range(rounds))
    assert shown <= rounds * 0.05 + 2 * np.sqrt(rounds * 0.05 * 0.95)


@pytest.mark.parametrize(("queries", "state"), [(FEWEST_QUERIES - 1, "provisional"), (FEWEST_QUERIES, "calibrated")])
def test_the_number_of_queries_decides(queries: int, state: str) -> None:
    record = standing(np.ones(queries, dtype=bool), alone(queries), documents=100, k=5)
    assert (record.state, record.human, record.generated, record.bias) == (state, queries, 0, None)
    assert record.reasons == ([] if state == "calibrated" else ["few_queries"])
    assert bool(record.because(5)) == (state == "provisional")


@pytest.mark.parametrize(("documents", "reasons"), [(5, ["few_documents"]), (6, [])])
def test_with_no_more_documents_than_k_accuracy_proves_nothing(documents: int, reasons: list[str]) -> None:
    record = standing(np.ones(40, dtype=bool), alone(40), documents, k=5)
    assert record.reasons == reasons
    assert record.accuracy.chance == 5 / documents
    assert record.worthless(5) is None


def test_every_reason_is_said() -> None:
    record = standing(np.array([True]), alone(1), documents=3, k=3)
    assert record.reasons == ["few_queries", "few_documents"]
    assert "label 29 more" in record.because(3)
    assert "no more documents than K = 3" in record.because(3)


@pytest.mark.parametrize(("units", "found"), [(alone(20), 8), (Units.of(np.repeat(np.arange(10), 2)), 10)])
def test_as_many_queries_as_it_says_would_show_it(units: Units, found: int) -> None:
    """So many copies of the set are above chance, and one fewer are not."""
    few = hits(found, 20)
    record = against_chance(few, units, 0.3)
    assert not record.shown
    copies = record.queries_needed // 20
    for sets, shown in ((copies - 1, False), (copies, True)):
        labels = np.concatenate([units.labels + 20 * copy for copy in range(sets)])
        assert against_chance(np.tile(few, sets), Units(labels, units.design_effect), 0.3).shown == shown


def test_no_number_of_queries_shows_what_is_not_so() -> None:
    record = against_chance(hits(2, 20), alone(20), 0.1)
    assert (record.shown, record.queries_needed) == (False, None)
