"""The sample is random within strata, its weights add up, and estimates are unbiased, also if it is cut short."""

import numpy as np
import pytest

from taugate.ingestion.labels.sampling import ABOVE, BELOW, NEAR, spreads, strata_of, turns, weights
from taugate.ingestion.labels.verdicts import Verdicts
from tests.ingestion.labels.rounds import judged, passages, round_of, sampled

DECISIONS = np.array([[0.9, 0.2], [0.52, 0.1], [0.3, 0.2], [0.8, 0.49], [0.1, 0.05], [0.95, 0.9]], dtype=np.float32)


def test_the_third_closest_to_the_threshold_is_near_it() -> None:
    assert strata_of(DECISIONS, 0.5).tolist() == [ABOVE, NEAR, BELOW, NEAR, BELOW, ABOVE]


def test_without_a_threshold_the_strata_are_thirds_by_the_best_result() -> None:
    assert strata_of(DECISIONS, None).tolist() == [2, 1, 0, 1, 0, 2]


def test_the_model_of_relevance_says_where_outcomes_differ() -> None:
    relevance = np.array([[0.99, 0.0], [0.5, 0.0], [0.01, 0.0]])
    decisions = np.array([[0.9, 0.1], [0.5, 0.1], [0.1, 0.05]], dtype=np.float32)
    strata = np.array([ABOVE, NEAR, BELOW])
    found = spreads(strata, decisions, 0.5, relevance)
    # A hit has the probability p, and τ loses only the query whose best result it drops.
    assert found == pytest.approx([np.sqrt(2 * 0.0099), np.sqrt(0.25), np.sqrt(0.0099)])
    assert spreads(strata, decisions, 0.5, None).tolist() == [1, 1, 1]


def test_a_shorter_sample_is_the_beginning_of_a_longer_one() -> None:
    sizes, spread = [10, 200, 90], np.array([0.1, 0.7, 0.3])
    longest = turns(sizes, spread, 300)
    assert sorted(longest) == [0] * 10 + [1] * 200 + [2] * 90
    for most in (1, 2, 3, 7, 50):
        assert turns(sizes, spread, most) == longest[:most]
    assert sorted(longest[:6]) == [0, 0, 1, 1, 2, 2]


def test_where_outcomes_differ_more_is_judged_but_nothing_counts_much_more_than_twice() -> None:
    sizes = [100, 100, 100]
    counts = np.bincount(turns(sizes, np.array([0.01, 0.6, 0.1]), 60))
    assert counts[1] > counts[2] > counts[0]
    assert max(weights(sizes, counts.tolist())) <= 2.2 * 300 / 60


def test_strata_without_a_query_and_samples_of_everybody() -> None:
    assert turns([0, 3, 0], np.ones(3), 50) == [1, 1, 1]
    assert weights([0, 3, 0], [0, 3, 0]) == [0, 1, 0]


@pytest.mark.parametrize("counts", [[5, 10, 3], [0, 10, 3], [0, 0, 1], [1, 0, 1]])
def test_the_weights_add_up_to_the_population(counts: list[int]) -> None:
    found = weights([20, 100.5, 30], counts)
    assert sum(weight * count for weight, count in zip(found, counts, strict=True)) == pytest.approx(150.5)


# 60 queries in strata of 6, 18 and 36; whether each has a relevant result goes with its stratum.
SIZES = [6, 18, 36]
STRATA = np.repeat([0, 1, 2], SIZES)
HITS = np.array([True] + [False] * 5 + [True, False] * 9 + [True] * 35 + [False])


def share_of_hits(rng: np.random.Generator, n: int, m: int) -> tuple[float, Verdicts]:
    """The share that a sample of n queries gives, of which the first m are judged."""
    order = turns(SIZES, np.array([0.1, 0.7, 0.3]), n)
    places = [iter(rng.permutation(np.flatnonzero(stratum == STRATA)).tolist()) for stratum in range(3)]
    chosen = [next(places[stratum]) for stratum in order]
    return verdicts_of(chosen, m, SIZES, {})


def verdicts_of(
    chosen: list[int], m: int, sizes: list[int], earlier: dict[str, float | None]
) -> tuple[float, Verdicts]:
    sample = round_of([sampled(f"q{place}", int(STRATA[place]), 0) for place in chosen], sizes, earlier)
    journal = judged(sample, {f"q{place}": [f"q{place}-r1"] if HITS[place] else [] for place in chosen[:m]})
    found = Verdicts.of(sample, passages(sample), [journal])
    share = sum(each.weight * any(each.grades.values()) for each in found.judged)
    share += sum(weight * HITS[int(name[1:])] for name, weight in found.earlier.items())
    return share / len(HITS), found


@pytest.mark.parametrize("m", [3, 8, 20])
def test_the_weighted_share_is_unbiased_also_for_a_stopped_session(m: int) -> None:
    rng = np.random.default_rng(m)
    shares = np.array([share_of_hits(rng, 20, m)[0] for _ in range(1500)])
    error = shares.std(ddof=1) / np.sqrt(len(shares))
    assert abs(shares.mean() - HITS.mean()) < 4 * error
    unweighted = np.mean([HITS[stratum == STRATA].mean() for stratum in range(3)])
    assert abs(unweighted - HITS.mean()) > 8 * error  # equal weights would be noticed


def test_a_second_sample_joined_to_the_first_is_unbiased() -> None:
    rng = np.random.default_rng(0)
    shares, totals = [], []
    for _ in range(1500):
        _, first = share_of_hits(rng, 12, 9)
        earlier = {each.query.id: each.weight for each in first.judged}
        left = np.array([place for place in range(60) if f"q{place}" not in earlier])
        sizes = [int((STRATA[left] == stratum).sum()) for stratum in range(3)]
        order = turns(sizes, np.ones(3), 12)
        places = [iter(rng.permutation(left[STRATA[left] == stratum]).tolist()) for stratum in range(3)]
        share, second = verdicts_of([next(places[stratum]) for stratum in order], 12, sizes, earlier)
        shares.append(share)
        totals.append(sum(second.earlier.values()) + sum(each.weight for each in second.judged))
    assert np.allclose(totals, 60)
    assert abs(np.mean(shares) - HITS.mean()) < 4 * np.std(shares) / np.sqrt(len(shares))
