"""Bounds of live loss, on streams whose true loss is known, and against the definitions."""

import itertools

import numpy as np
import pytest

from benchmarks.drift.live_loss import DELTA, HARMFUL, World, covered, judgements_until_shown, pages
from taugate.drift.live_loss import Labels, LiveLoss, Prediction, corrected, judged_draw, read_judged
from taugate.drift.sequences import BLOCK, Bets, Draw, LiveShare, Outcome, Sampler, ShareBounds


@pytest.mark.parametrize(
    "world",
    [
        World("independent"),
        World("bursts, late", burst=5, late=True),
        World("a model that is wrong in .15", model=True, share=0.3),
    ],
    ids=lambda world: world.name,
)
def test_bounds_of_known_loss_hold_at_all_times(world: World) -> None:
    held = np.array([covered(world, seed, judgements=120) for seed in range(8)])

    assert held.sum(axis=0).min() >= 7


@pytest.mark.parametrize(
    ("world", "judgements"), [(HARMFUL[0], 300), (HARMFUL[1], 150)], ids=["people", "a model directs"]
)
def test_loss_of_twice_the_limit_is_shown_by_few_judgements(world: World, judgements: int) -> None:
    assert np.median([judgements_until_shown(world, seed) for seed in range(5)]) <= judgements


def test_loss_within_the_limit_raises_no_page() -> None:
    assert not any(pages(World("quiet", loss=DELTA / 2, share=0.05), seed, 5000) for seed in range(3))


@pytest.mark.parametrize(
    ("relevant", "kept", "labels"),
    [
        ([False, True], [True, True], (False, True, False)),
        ([False, True], [True, False], (True, True, False)),
        ([True, True], [False, False], (True, True, False)),
        ([False, False], [True, False], (False, False, True)),
        ([False, False], [False, False], (False, False, False)),
        ([True, True], [False, True], (False, True, False)),
    ],
)
def test_labels_of_judged_results_follow_the_definitions(
    relevant: list[bool], kept: list[bool], labels: tuple[bool, ...]
) -> None:
    assert Labels.of(relevant, kept) == labels


def test_units_of_draws_have_mean_zero_at_the_true_share() -> None:
    rng, sampler = np.random.default_rng(0), Sampler(0.2, 1)
    units = []
    for _ in range(30_000):
        guess = rng.random() < 0.3  # tells something of the label, and steers the draw
        label = rng.random() < (0.3 if guess else 0.05)
        propensity = sampler.propensity(3.0 if guess else 1.0)
        draw = sampler.offer(0, [Outcome(0.4 * guess, 1.0)], propensity, rng.random())
        if draw is not None:
            units.append(draw.unit(0, Outcome(label, 1.0)))
    y, x, predicted_y, predicted_x, _ = np.array(units).T

    true = 0.3 * 0.3 + 0.7 * 0.05
    for centred in (y - true * x, predicted_y - true * predicted_x, y - predicted_y - true * (x - predicted_x)):
        assert abs(centred.mean()) < 4 * centred.std() / np.sqrt(len(units))


def test_wealth_is_never_lost_by_extreme_units() -> None:
    bets = Bets(np.array([0.01, 0.05, 0.5, 0.9]), 0.05, 0.05)
    for a, b in itertools.product((-0.2, 0.0, 1.2), (-1.0, 0.0, 2.0)):
        bets.add(np.array([[a, b]] * 3), 1.0)

    assert np.isfinite(bets.logs).all()


def test_queries_of_one_cluster_count_as_one() -> None:
    shares = LiveShare(limit=DELTA), LiveShare(limit=DELTA)
    unit = np.array([1.0, 1.0, 0.0, 0.0, 1.0])
    for share, repeats in zip(shares, (1, 50), strict=True):
        for cluster in range(BLOCK):
            for _ in range(repeats if cluster == 0 else 1):
                share.add(cluster, unit)

    np.testing.assert_array_equal(shares[0].all.logs, shares[1].all.logs)


def test_judgements_to_go_fall_to_zero_as_losses_fail_to_appear() -> None:
    share, unit = LiveShare(limit=DELTA), np.array([0.7, 0.7, 0.0, 0.0, 0.7])
    left = [share.judgements_to_go]
    for cluster in range(400):
        share.add(cluster, np.array([0.0, *unit[1:]]))
        left.append(share.judgements_to_go)

    assert 50 < left[0] < 400
    assert left[-1] == 0
    assert share.all.interval.upper <= DELTA
    assert np.isnan(LiveShare().judgements_to_go)


def test_promise_without_certificate_has_bounds_and_no_judgements_to_go() -> None:
    loss = LiveLoss(None)

    assert loss.loss() == ShareBounds(0.0, 1.0)
    assert np.isnan(loss.judgements_to_go)


@pytest.mark.parametrize(
    ("said", "sensitivity", "false", "true"),
    [
        (ShareBounds(0.22, 0.22), ShareBounds(0.85, 0.85), ShareBounds(0.15, 0.15), ShareBounds(0.1, 0.1)),
        (ShareBounds(0.1, 0.1), ShareBounds(0.85, 0.9), ShareBounds(0.15, 0.2), ShareBounds(0.0, 0.0)),
        (ShareBounds(0.3, 0.4), ShareBounds(0.2, 0.9), ShareBounds(0.1, 0.3), ShareBounds(0.0, 1.0)),
    ],
    ids=["known", "fewer than are wrong", "a model that guesses"],
)
def test_share_by_a_wrong_judge_is_corrected(
    said: ShareBounds, sensitivity: ShareBounds, false: ShareBounds, true: ShareBounds
) -> None:
    np.testing.assert_allclose(corrected(said, sensitivity, false), true, atol=1e-9)


def test_judged_draws_survive_packing_and_others_are_rejected() -> None:
    draw = Draw(7, 0.5, Prediction(0.1, 0.9, 0.0).outcomes, (Outcome(0.1, 0.3), Outcome(0.0, 0.4)))
    rows = judged_draw(draw, Labels(True, True, False), model=False)

    np.testing.assert_array_equal(read_judged(rows.tobytes()), rows)
    for damaged in (rows.tobytes()[:-1], b"\xff" * rows.itemsize):
        with pytest.raises(ValueError, match="."):
            read_judged(damaged)
