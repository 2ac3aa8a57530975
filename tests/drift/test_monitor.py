"""Alarms on traffic: none without a change, soon after one, and the same for any batches."""

from dataclasses import replace

import numpy as np
import pytest

from taugate.drift.monitor import Monitor
from taugate.drift.observations import Observations
from taugate.drift.signals import Bounds, Rules, theta_of
from tests.drift.similarities import bursts, reference, replies, traffic
from tests.drift.watched import CALIBRATION, monitor, on

SHARE = 0.9  # of the replies with a result that hold a relevant one
JUDGED = replace(CALIBRATION, correct_kept=(CALIBRATION.kept > 0) & (np.arange(len(CALIBRATION)) % 10 > 0))


def test_calibration_traffic_raises_no_alarm() -> None:
    rng = np.random.default_rng(1)
    watched = monitor()
    assert not any(watched.update(traffic(rng, 10_000)) for _ in range(10))
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
def test_shift_raises_its_signal(shift: dict[str, float], signal: str) -> None:
    assert signal in on(monitor().update(traffic(np.random.default_rng(2), 4000, **shift)))


def test_other_corpus_is_detected_within_800_queries() -> None:
    assert on(monitor().update(traffic(np.random.default_rng(2), 800, mean=0.4)))


def test_other_random_documents_raise_only_roe() -> None:
    assert on(monitor().update(traffic(np.random.default_rng(2), 4000, random=0.25))) == {"roe"}


@pytest.mark.parametrize("seed", range(5))
def test_fewer_relevant_replies_raise_quality(seed: int) -> None:
    """A fifth fewer, as after a change of the corpus."""
    assert on(monitor(calibration=JUDGED).judge(replies(np.random.default_rng(seed), 1000, 0.8 * SHARE))) == {"quality"}


@pytest.mark.parametrize("share", [SHARE, 1.0], ids=["alike", "only relevant ones sent"])
def test_as_many_relevant_replies_raise_no_alarm(share: float) -> None:
    assert monitor(calibration=JUDGED).judge(replies(np.random.default_rng(2), 200_000, share)) == []


@pytest.mark.parametrize("length", [10, 50])
def test_bursts_of_judged_topics_raise_no_alarm(length: int) -> None:
    """The shares of topics differ by a standard deviation of .08."""
    rng = np.random.default_rng(3)
    shares = np.clip(rng.normal(SHARE, 0.08, size=100_000 // length), 0, 1)
    assert monitor(calibration=JUDGED).judge(replies(rng, 100_000, np.repeat(shares, length))) == []


def test_shift_below_smallest_effect_raises_no_alarm() -> None:
    """A tenth of a standard deviation, which 100,000 queries show beyond doubt."""
    rng = np.random.default_rng(3)
    watched = monitor()
    assert not any(watched.update(traffic(rng, 10_000, mean=0.59)) for _ in range(10))


def test_shift_above_smallest_effect_raises_alarm() -> None:
    """The same, at half the smallest effect and with a calibration that leaves no doubt."""
    rng = np.random.default_rng(3)
    watched = monitor(Rules(smallest_effect=0.02), reference(rng, 50_000))
    assert on(watched.update(traffic(rng, 100_000, mean=0.59)))


def test_alarm_ends_and_begins_again() -> None:
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
def test_alarm_lasts_as_long_as_shift(block: int, mean: float) -> None:
    """None ends, and begins again, because of a few blocks that happened to be as at calibration."""
    changes = monitor(Rules(block=block)).update(traffic(np.random.default_rng(5), 30_000, mean=mean))
    assert [change for change in changes if not change.on] == []
    assert "topk_similarity" in on(changes)


def test_share_of_threshold_is_one_during_alarm() -> None:
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
def test_alarms_do_not_depend_on_batches(block: int | str) -> None:
    """With queries that are sent again, in bursts, and more of them than are taken at a time."""
    rng = np.random.default_rng(7)
    parts = [traffic(rng, 3000), traffic(rng, 4000, mean=0.3), bursts(rng, 7000, 500, 0.05)]
    seen = Observations.joined(parts).take(np.sort(rng.integers(0, 14_000, size=16_000)))
    complete = changes_of(seen, len(seen), Rules(block=block))
    assert complete
    assert complete == changes_of(seen, 7, Rules(block=block)) == changes_of(seen, 1000, Rules(block=block))


def test_fifths_are_yielded_with_their_rows() -> None:
    seen = traffic(np.random.default_rng(8), 20_000)
    weighed = [*monitor().process(seen)]
    assert [each.fifth.row for each in weighed] == [*range(39, 20_000, 40)]
    complete = [each.fifth.block is not None for each in weighed]
    assert complete == [False, False, False, False, True] * 100
    rng = np.random.default_rng(8)
    assert [each.fifth.row for each in monitor().process_judgements(replies(rng, 50, 1.0))] == [*range(4, 50, 5)]


@pytest.mark.parametrize("apart", [0.05, 0.07, 0.09])
def test_bursts_within_block_raise_no_alarm(apart: float) -> None:
    """A query varies by .1, its topic by so much of it: with .09, all queries of a burst are nearly alike."""
    assert monitor().update(bursts(np.random.default_rng(9), 50_000, 200, apart)) == []


def test_long_bursts_need_long_blocks() -> None:
    seen = bursts(np.random.default_rng(10), 50_000, 1500, 0.09)
    assert on(monitor().update(seen))
    assert not on(monitor(Rules(block=1500)).update(seen))


def test_auto_block_size_grows_with_bursts() -> None:
    rng = np.random.default_rng(11)
    rules = Rules(block="auto")
    ordinary, in_bursts = monitor(rules), monitor(rules)
    ordinary.update(traffic(rng, 40_000))
    in_bursts.update(bursts(rng, 40_000, 1000, 0.09))
    assert ordinary.queries.blocks.size == 200
    assert in_bursts.queries.blocks.size >= 600


def test_constant_probe_raises_no_alarm() -> None:
    """Of every two queries one is a health check that finds nothing."""
    rng = np.random.default_rng(12)
    seen, odd = traffic(rng, 40_000), traffic(rng, 40_000, mean=0.0)
    odd.key[:] = 7
    both = Observations.joined([seen, odd]).take(np.arange(80_000).reshape(2, -1).T.ravel())
    assert monitor().update(both) == []
    assert on(monitor().update(odd)) == set()  # nor is it alone
    fresh = traffic(rng, 2000, mean=0.0)
    assert on(monitor().update(fresh))  # and many such queries are


def test_repeated_judgement_counts_once() -> None:
    rng = np.random.default_rng(13)
    wrong = replies(rng, 20_000, 0.0)
    wrong.key[:] = 7
    assert monitor().judge(wrong) == []


def test_small_calibration_has_wider_bounds() -> None:
    widths = [
        alarm.bounds.upper[4] - alarm.bounds.lower[4]
        for alarm in (monitor(calibration=reference(np.random.default_rng(0), few)).alarms[0] for few in (50, 5000))
    ]
    assert widths[0] > 3 * widths[1]


def test_policy_that_never_drops_raises_no_alarm() -> None:
    kept = np.full(len(CALIBRATION), 5)
    calibration = replace(CALIBRATION, kept=kept, correct_kept=kept > 0)
    seen = replace(traffic(np.random.default_rng(1), 5000), kept=np.full(5000, 5, dtype=np.float32))
    assert monitor(calibration=calibration).update(seen) == []


def test_shift_beyond_ordinary_range_raises_alarm() -> None:
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
