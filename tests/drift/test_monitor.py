"""Alarms on traffic: quiet where nothing has changed, soon where something has, the same however traffic is cut."""

from dataclasses import replace

import numpy as np
import pytest

from taugate.drift.monitor import Monitor
from taugate.drift.observations import Observations
from taugate.drift.rules import Rules
from taugate.drift.signals import Bounds, theta_of
from tests.drift.similarities import bursts, judged, reference, traffic
from tests.drift.watched import CALIBRATION, monitor, on


def test_traffic_as_at_calibration_gives_no_alarm() -> None:
    rng = np.random.default_rng(1)
    watched = monitor()
    assert not any(watched.update(traffic(rng, 10_000)) for _ in range(10))
    assert not watched.judge(judged(rng, rng.choice(CALIBRATION.correct[CALIBRATION.correct_kept], 20_000)))
    assert not any(alarm.on for alarm in watched.alarms)
    assert all(alarm.share_of_threshold < 0.5 for alarm in watched.alarms)


@pytest.mark.parametrize(
    ("shift", "signal"),
    [
        ({"mean": 0.4}, "topk_similarity"),
        ({"mean": 0.8}, "topk_similarity"),
        ({"mean": 0.4}, "empty_responses"),
        ({"mean": 0.4}, "dropped_share"),
        ({"mean": 0.75}, "dropped_share"),
        ({"random": 0.25}, "roe"),
    ],
)
def test_each_signal_sees_what_it_is_there_for(shift: dict[str, float], signal: str) -> None:
    assert signal in on(monitor().update(traffic(np.random.default_rng(2), 4000, **shift)))


def test_a_wholly_different_corpus_is_seen_within_eight_hundred_queries() -> None:
    assert on(monitor().update(traffic(np.random.default_rng(2), 800, mean=0.4)))


def test_other_random_documents_are_roe_and_nothing_else() -> None:
    assert on(monitor().update(traffic(np.random.default_rng(2), 4000, random=0.25))) == {"roe"}


def test_judged_documents_below_theta() -> None:
    rng = np.random.default_rng(2)
    correct = rng.choice(CALIBRATION.correct[CALIBRATION.correct_kept], 2000)
    correct[::10] = -0.5
    assert on(monitor().judge(judged(rng, correct))) == {"coe"}


def test_a_shift_that_is_certain_and_too_small_to_matter() -> None:
    """A tenth of a standard deviation, which 100,000 queries show beyond doubt."""
    rng = np.random.default_rng(3)
    watched = monitor()
    assert not any(watched.update(traffic(rng, 10_000, mean=0.59)) for _ in range(10))


def test_and_one_that_is_not() -> None:
    """The same, at half the smallest effect and with a calibration that leaves no doubt."""
    rng = np.random.default_rng(3)
    watched = monitor(Rules(smallest_effect=0.02), reference(rng, 50_000))
    assert on(watched.update(traffic(rng, 100_000, mean=0.59)))


def test_it_ends_after_five_blocks_as_at_calibration_and_begins_again() -> None:
    rng = np.random.default_rng(4)
    watched = monitor()
    for _ in range(2):
        assert "topk_similarity" in on(watched.update(traffic(rng, 1000, mean=0.4)))
        assert watched.update(traffic(rng, 800)) == []
        ended = [change for change in watched.update(traffic(rng, 5200)) if change.signal == "topk_similarity"]
        assert [change.on for change in ended] == [False]
        assert not any(alarm.on for alarm in watched.alarms)


@pytest.mark.parametrize(
    ("block", "mean"), [(25, 0.5), (25, 0.55), (25, 0.56), (200, 0.5), (200, 0.54), (200, 0.55), (1000, 0.5)]
)
def test_it_goes_on_while_the_shift_does(block: int, mean: float) -> None:
    """None ends, and begins again, because of a few blocks that happened to be as at calibration."""
    changes = monitor(Rules(block=block)).update(traffic(np.random.default_rng(5), 30_000, mean=mean))
    assert [change for change in changes if not change.on] == []
    assert "topk_similarity" in on(changes)


def test_what_is_shown_is_1_or_more_while_an_alarm_is_on_and_less_otherwise() -> None:
    rng = np.random.default_rng(6)
    watched = monitor()
    shown: dict[bool, list[float]] = {True: [], False: []}
    for mean in np.repeat([0.6, 0.5, 0.6, 0.53, 0.6], 40):
        watched.update(traffic(rng, 150, mean=mean))
        for alarm in watched.alarms:
            shown[alarm.on].append(alarm.share_of_threshold)
    assert min(shown[True]) >= 1
    assert 1.5 < max(shown[True]) <= 2
    assert min(shown[False]) >= 0
    assert 0.3 < max(shown[False]) < 1


def changes_of(seen: Observations, size: int, rules: Rules) -> list[tuple[str, int, bool]]:
    watched = monitor(rules)
    return [
        (change.signal, start + change.row, change.on)
        for start in range(0, len(seen), size)
        for change in watched.update(seen.take(slice(start, start + size)))
    ]


@pytest.mark.parametrize("block", [100, 200, "auto"])
def test_it_is_the_same_however_traffic_is_cut(block: int | str) -> None:
    """With queries that are sent again, in bursts, and more of them than are taken at a time."""
    rng = np.random.default_rng(7)
    parts = [traffic(rng, 3000), traffic(rng, 4000, mean=0.3), bursts(rng, 7000, 500, 0.05)]
    seen = Observations.joined(parts).take(np.sort(rng.integers(0, 14_000, size=16_000)))
    whole = changes_of(seen, len(seen), Rules(block=block))
    assert whole
    assert whole == changes_of(seen, 7, Rules(block=block)) == changes_of(seen, 1000, Rules(block=block))


def test_every_fifth_of_a_block_is_told_with_its_row() -> None:
    seen = traffic(np.random.default_rng(8), 20_000)
    weighed = [*monitor().process(seen)]
    assert [each.fifth.row for each in weighed] == [*range(39, 20_000, 40)]
    whole = [each.fifth.block is not None for each in weighed]
    assert whole == [False, False, False, False, True] * 100
    rng = np.random.default_rng(8)
    correct = judged(rng, np.ones(400))
    assert [each.fifth.row for each in monitor().process_judgements(correct)] == [*range(39, 400, 40)]


@pytest.mark.parametrize("apart", [0.05, 0.07, 0.09])
def test_bursts_of_two_hundred_queries_on_a_topic_are_quiet(apart: float) -> None:
    """A query varies by .1, its topic by so much of it: with .09, all queries of a burst are nearly alike."""
    assert monitor().update(bursts(np.random.default_rng(9), 50_000, 200, apart)) == []


def test_longer_bursts_are_not_but_with_blocks_that_are_as_long() -> None:
    seen = bursts(np.random.default_rng(10), 50_000, 1500, 0.09)
    assert on(monitor().update(seen))
    assert not on(monitor(Rules(block=1500)).update(seen))


def test_auto_keeps_small_blocks_for_independent_traffic_and_makes_larger_ones_for_bursts() -> None:
    rng = np.random.default_rng(11)
    rules = Rules(block="auto")
    ordinary, in_bursts = monitor(rules), monitor(rules)
    ordinary.update(traffic(rng, 40_000))
    in_bursts.update(bursts(rng, 40_000, 1000, 0.09))
    assert ordinary.queries.blocks.size == 200
    assert in_bursts.queries.blocks.size >= 600


def test_one_odd_query_sent_all_the_time_is_no_drift() -> None:
    """Of every two queries one is a health check that finds nothing."""
    rng = np.random.default_rng(12)
    seen, odd = traffic(rng, 40_000), traffic(rng, 40_000, mean=0.0)
    odd.key[:] = 7
    both = Observations.joined([seen, odd]).take(np.arange(80_000).reshape(2, -1).T.ravel())
    assert monitor().update(both) == []
    assert on(monitor().update(odd)) == set()  # nor is it alone
    fresh = traffic(rng, 2000, mean=0.0)
    assert on(monitor().update(fresh))  # and many such queries are


def test_a_judgement_sent_again_counts_once() -> None:
    rng = np.random.default_rng(13)
    wrong = judged(rng, np.full(20_000, -0.5))
    wrong.key[:] = 7
    assert monitor().judge(wrong) == []


def test_a_calibration_of_few_queries_allows_more() -> None:
    widths = [
        alarm.bounds.upper[4] - alarm.bounds.lower[4]
        for alarm in (monitor(calibration=reference(np.random.default_rng(0), few)).alarms[0] for few in (50, 5000))
    ]
    assert widths[0] > 3 * widths[1]


def test_a_policy_that_never_drops_has_nothing_to_fall_below() -> None:
    kept = np.full(len(CALIBRATION), 5)
    calibration = replace(CALIBRATION, kept=kept, correct_kept=kept > 0)
    seen = replace(traffic(np.random.default_rng(1), 5000), kept=np.full(5000, 5, dtype=np.float32))
    assert monitor(calibration=calibration).update(seen) == []


def test_an_ordinary_range_is_no_drift_and_what_is_beyond_it_is() -> None:
    rng = np.random.default_rng(14)
    (topk, *_) = monitor().queries.signals
    lower = topk.variables(traffic(rng, 20_000, mean=0.53)).mean(axis=0)
    ordinary = {"topk_similarity": Bounds(np.minimum(lower, topk.means), np.maximum(lower, topk.means))}
    watched = Monitor(CALIBRATION, theta_of(CALIBRATION, 5), Rules(), ordinary)
    without = on(monitor().update(traffic(rng, 40_000, mean=0.53)))
    assert "topk_similarity" in without
    changes = [watched.update(traffic(rng, 20_000, mean=mean)) for mean in (0.53, 0.565, 0.6)]
    assert "topk_similarity" not in {signal for each in changes for signal in on(each)}
    assert "topk_similarity" in on(watched.update(traffic(rng, 20_000, mean=0.46)))
