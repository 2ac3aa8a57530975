"""One alarm, updated with means of blocks and fifths: when it begins, what it shows, when it ends."""

from collections.abc import Callable

import numpy as np
import pytest

from taugate.drift.alarm import Alarm, threshold
from taugate.drift.blocks import Fifth
from taugate.drift.signals import Bounds
from tests.drift.test_e_detectors import AVERAGE_STAKE, literal

BOUNDS = Bounds(np.array([0.4, 0.0]), np.array([0.6, 0.1]))
WIDE = Bounds(np.array([0.3, 0.0]), np.array([0.7, 0.2]))
EVERYTHING = slice(None)
Packed = dict[str, np.ndarray]


def alarm(log_of: float = 8.0) -> Alarm:
    return Alarm("share", BOUNDS, WIDE, log_of)


def block(means: np.ndarray) -> list[Fifth]:
    """Five fifths, (5, V), with their average as that of the block."""
    return [Fifth(0, mean, 40, means.mean(axis=0) if part == 4 else None) for part, mean in enumerate(means)]


def even(first: float, second: float = 0.05) -> list[Fifth]:
    """A block whose fifths are all alike."""
    return block(np.tile([first, second], (5, 1)))


def feed(one: Alarm, fifths: list[Fifth]) -> list[bool]:
    """What began, True, or ended, False."""
    return [one.on for fifth in fifths if one.update(fifth, EVERYTHING)]


@pytest.mark.parametrize(("average_run_length", "alarms", "size"), [(1e9, 5, 200), (1e6, 1, 25), (1e12, 2, 10_000)])
def test_threshold_bounds_false_alarm_probability(average_run_length: float, alarms: int, size: int) -> None:
    """P(false alarm within N queries) ≤ alarms · (blocks / c + fifths / 5c), which is to be N / average_run_length."""
    c = np.exp(threshold(average_run_length, alarms, size))
    queries = 12_345.0
    blocks, fifths = queries / size, 5 * queries / size
    assert alarms * (blocks / c + fifths / (5 * c)) == pytest.approx(queries / average_run_length)


def test_threshold_has_minimum() -> None:
    assert threshold(1.0, 5, 10_000) == threshold(100.0, 5, 10_000) == 1


def test_evidence_is_maximum_of_blocks_and_fifths() -> None:
    rng = np.random.default_rng(0)
    one = alarm(np.inf)
    fifths = rng.random((50, 5, 2)) * [1.0, 0.3]
    of_blocks = literal(fifths.mean(axis=1), *BOUNDS)
    of_fifths = literal(fifths.reshape(-1, 2), *WIDE)
    evidence_values = []
    for number, means in enumerate(fifths):
        for part, fifth in enumerate(block(means)):
            one.update(fifth, EVERYTHING)
            complete = number if part == 4 else number - 1
            blocks_so_far = of_blocks[complete] if complete >= 0 else 0.0
            evidence_values.append(one.log_evidence)
            expected = max(blocks_so_far, of_fifths[5 * number + part] - np.log(5))
            assert evidence_values[-1] == pytest.approx(expected)
    assert max(evidence_values) > 1


def test_clear_shift_raises_alarm_within_block() -> None:
    one = alarm()
    changes = [one.update(fifth, EVERYTHING) for fifth in even(1.0, 1.0) * 2]
    assert True in changes[:9]


def test_small_shift_is_detected_by_blocks() -> None:
    """Between the bounds of a block and those of a fifth."""
    assert feed(alarm(), even(0.66) * 200) == [True]


def test_means_within_bounds_give_no_evidence() -> None:
    one = alarm()
    assert feed(one, even(0.59, 0.09) * 1000) == []
    assert one.share_of_threshold == 0


def test_alarm_uses_only_its_columns() -> None:
    one = Alarm("second", Bounds(BOUNDS.lower[:1], BOUNDS.upper[:1]), Bounds(WIDE.lower[:1], WIDE.upper[:1]), 8.0)
    fifths = [
        Fifth(0, np.array([1.0, 0.5, 1.0]), 40, np.array([1.0, 0.5, 1.0]) if part % 5 == 4 else None)
        for part in range(500)
    ]
    assert not any(one.update(fifth, slice(1, 2)) for fifth in fifths)
    assert any(one.update(fifth, slice(2, 3)) for fifth in fifths)


def test_alarm_ends_after_five_quiet_blocks() -> None:
    one = alarm()
    for _ in range(3):
        assert feed(one, even(1.0) * 30) == [True]
        assert feed(one, even(0.52) * 4) == []
        assert feed(one, even(0.52)[:4]) == []
        assert feed(one, even(0.52)[4:]) == [False]
        assert not one.on
        assert one.share_of_threshold == pytest.approx(0)  # nothing is left of the evidence


def test_alarm_ends_by_average_of_five_blocks() -> None:
    one = alarm()
    assert feed(one, even(1.0) * 30) == [True]
    assert feed(one, (even(0.55) + even(0.75)) * 20) == []  # the average of three and two is .63, of two and three .67
    assert feed(one, even(0.55) * 2) == []
    assert feed(one, even(0.55)) == [False]  # with one of .75 it is .59
    assert feed(one, even(1.0) * 30) == [True]
    assert feed(one, even(0.52, 0.11) * 50) == []  # the second variable is still beyond


def test_alarm_lasts_at_least_five_blocks() -> None:
    """A first fifth so far off that the alarm begins with it, in a block that is otherwise as it should be."""
    one = alarm(0.01 - np.log(5))
    odd = block(np.array([[1.0, 0.45]] + 4 * [[0.4, 0.0]]))
    assert feed(one, odd[:1]) == [True]
    assert feed(one, odd[1:] + even(0.5) * 3) == []
    assert feed(one, even(0.5)) == [False]


def test_alarm_lasts_as_long_as_shift() -> None:
    rng = np.random.default_rng(1)
    shares = rng.binomial(40, 0.7, size=(2000, 5)) / 40
    assert feed(alarm(), [fifth for parts in shares for fifth in even_mean(parts)]) == [True]


def even_mean(first: np.ndarray) -> list[Fifth]:
    return block(np.column_stack([first, np.full(5, 0.05)]))


def test_share_of_threshold_keeps_peak_during_alarm() -> None:
    rng = np.random.default_rng(2)
    one = alarm()
    shown: dict[bool, list[float]] = {True: [], False: []}
    for mean in np.repeat([0.5, 0.63, 0.5, 0.8, 0.5, 0.66], 60):
        for fifth in even_mean(rng.binomial(40, mean, size=5) / 40):
            was_on, before = one.on, one.share_of_threshold
            one.update(fifth, EVERYTHING)
            if one.on and was_on:
                assert one.share_of_threshold >= before
            shown[one.on].append(one.share_of_threshold)
    assert len(shown[True]) > 100
    assert min(shown[True]) >= 1
    assert 1.5 < max(shown[True]) <= 2
    assert len(shown[False]) > 100
    assert min(shown[False]) == 0
    assert 0.3 < max(shown[False]) < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("calibrated", "direction"), [(0.5, -1), (0.5, 1), (0.1, 1), (0.999, -1)], ids=["lower", "higher", "rare", "COE"]
)
def test_detectable_shift_is_detected_nine_times_in_ten(calibrated: float, direction: int) -> None:
    """Fifty blocks of 200 independent queries, two hundred times; within its bounds nothing is ever found."""
    rng = np.random.default_rng(5)
    calibrated_bounds = Bounds(np.array([calibrated]), np.array([calibrated]))

    def fresh() -> Alarm:
        return Alarm("share", calibrated_bounds.shifted(0.15), calibrated_bounds.shifted(0.2), 17.5)

    effects = np.arange(0.15, 2, 0.002)
    means = next(
        means
        for means in (calibrated_bounds.shifted(float(size))[direction > 0] for size in effects)
        if fresh().detects(means, 50, 200)
    )
    evidence_values = 0
    for _ in range(200):
        shares = rng.binomial(40, means, size=(50, 5, 1)) / 40
        evidence_values += feed(fresh(), [fifth for parts in shares for fifth in block(parts)]) != []
    assert 0.82 < evidence_values / 200 < 0.99
    assert not fresh().detects(calibrated_bounds.shifted(0.14)[direction > 0], 10_000, 200)


def test_unbounded_signal_gives_no_evidence() -> None:
    nothing = Bounds(np.zeros(2), np.ones(2))
    one = Alarm("share", nothing, nothing, 8.0)
    assert feed(one, (even(1.0, 1.0) + even(0.0, 0.0)) * 100) == []
    assert one.log_evidence == -np.inf
    assert one.share_of_threshold == 0
    assert not one.detects(np.ones(2), 50, 200)


@pytest.mark.slow
@pytest.mark.parametrize("of_blocks", [True, False], ids=["whole blocks", "fifths"])
def test_false_alarm_rate_holds_in_worst_case(of_blocks: bool) -> None:
    """What is nothing, or just what an alarm takes, with the bound as its expectation: in blocks, or in fifths."""
    runs, size, bound = 400, 25, 0.02
    bounds = Bounds(np.zeros(1), np.full(1, bound))
    average_run_length = 12.0 * 0.6 * size
    log_of = threshold(average_run_length, 1, size)
    weight = 5 / 6 if of_blocks else 1 / 6
    enough = bound * (1 + (np.exp(log_of) / weight - 1) / AVERAGE_STAKE)
    high = min(1.0, enough)
    rng = np.random.default_rng(3)
    queries = []
    for _ in range(runs):
        one = Alarm("share", bounds, bounds, log_of)
        number = 0
        while not one.on and number < 500:
            jumps = np.repeat(rng.random(1), 5) if of_blocks else rng.random(5)
            for fifth in block(np.where(jumps < bound / high, high, 0.0)[:, None]):
                if not one.on:
                    number += 1
                    one.update(fifth, slice(1))
        queries.append(number * size / 5)
    assert np.mean(queries) - 3 * np.std(queries) / np.sqrt(runs) > average_run_length


@pytest.mark.parametrize("blocks", [0, 1, 2, 3, 10, 12, 17])
def test_restored_alarm_continues_identically(blocks: int) -> None:
    """Before the alarm, in it, while it is about to end, and after it."""
    rng = np.random.default_rng(4)
    means = np.concatenate([np.full(10, 0.8), np.full(10, 0.5), np.full(10, 0.8)])
    fifths = [fifth for mean in means for fifth in even_mean(rng.binomial(40, mean, size=5) / 40)]
    one, other = alarm(20.0), alarm(20.0)
    feed(other, even(1.0) * 3)  # forgets what it knew
    feed(one, fifths[: 5 * blocks + 2])
    other.restore(one.pack())
    remaining = fifths[5 * blocks + 2 :]
    assert [one.update(fifth, EVERYTHING) for fifth in remaining] == [
        other.update(fifth, EVERYTHING) for fifth in remaining
    ]
    assert same(one.pack(), other.pack())


def test_packed_alarm_state_is_a_copy() -> None:
    one = alarm()
    feed(one, even(0.8) * 3)
    packed = one.pack()
    before = {name: array.copy() for name, array in packed.items()}
    feed(one, even(0.8) * 3)
    assert same(packed, before)


def same(one: Packed, two: Packed) -> bool:
    return {*one} == {*two} and all(
        one[name].dtype == two[name].dtype and np.array_equal(one[name], two[name]) for name in one
    )


HOSTILE: dict[str, Callable[[Packed], Packed]] = {
    "nothing": lambda packed: {},
    "one array fewer": lambda packed: {name: array for name, array in packed.items() if name != "since"},
    "one array more": lambda packed: packed | {"more": np.zeros(3)},
    "a highest share that is not a number": lambda packed: packed | {"peak": packed["peak"] * np.nan},
    "a highest share below that of an alarm": lambda packed: packed | {"peak": packed["peak"] / 10},
    "a highest share beyond what is shown": lambda packed: packed | {"peak": packed["peak"] * 10},
    "no highest share": lambda packed: packed | {"peak": packed["peak"][:0]},
    "on as a number": lambda packed: packed | {"on": np.array([1])},
    "on and off": lambda packed: packed | {"on": np.array([True, False])},
    "neither": lambda packed: packed | {"on": np.zeros(0, dtype=np.bool_)},
    "evidence of fewer bounds": lambda packed: packed | {"blocks": packed["blocks"][1:]},
    "evidence in float32": lambda packed: packed | {"fifths": packed["fifths"].astype(np.float32)},
    "evidence that is not a number": lambda packed: packed | {"fifths": packed["fifths"] * np.nan},
    "evidence without end": lambda packed: packed | {"blocks": packed["blocks"] + np.inf},
    "means of fewer variables": lambda packed: packed | {"since": packed["since"][:, :1]},
    "means that are not numbers": lambda packed: packed | {"since": packed["since"] * np.nan},
    "means in one row": lambda packed: packed | {"since": packed["since"].ravel()},
    "means beyond 1": lambda packed: packed | {"since": packed["since"] + 1},
    "means below 0": lambda packed: packed | {"since": packed["since"] - 1},
    "more means than it takes": lambda packed: packed | {"since": np.tile(packed["since"], (10, 1))},
    "means since an alarm that is off": lambda packed: packed | {"on": np.array([False]), "peak": np.zeros(1)},
    "the highest share of an alarm that is off": (
        lambda packed: packed | {"on": np.array([False]), "since": packed["since"][:0]}
    ),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_invalid_alarm_state_is_refused(change: Callable[[Packed], Packed]) -> None:
    sender, one = alarm(), alarm()
    assert feed(sender, even(0.9) * 30) == [True]
    feed(one, even(0.61) * 7)
    before = one.pack()
    with pytest.raises(ValueError, match="not the state of an alarm"):
        one.restore(change(sender.pack()))
    assert same(one.pack(), before)
    one.restore(sender.pack())  # and what is one is still taken
    assert one.on
