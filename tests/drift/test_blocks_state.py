"""The state of blocks: packed, restored elsewhere, and validated."""

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.drift.blocks import Blocks
from taugate.drift.signals import MAX_IN_BLOCK
from tests.drift.repeated import NEUTRAL, zipf
from tests.drift.similarities import keys

Packed = dict[str, np.ndarray]


@pytest.mark.parametrize("size", [25, 203])
@pytest.mark.parametrize("cut", [0, 1, 24, 25, 39, 40, 41, 202, 203, 5000, 5555])
def test_restored_blocks_continue_identically(cut: int, size: int) -> None:
    asked, values = zipf(np.random.default_rng(7), 8000)
    blocks, other = Blocks(NEUTRAL, size), Blocks(NEUTRAL, size)
    for _fifth in blocks.feed(asked[:cut], values[:cut]):
        pass
    other.restore(blocks.pack())
    remaining = [*blocks.feed(asked[cut:], values[cut:])]
    again = [*other.feed(asked[cut:], values[cut:])]
    assert len(remaining) > 10
    for one, two in zip(remaining, again, strict=True):
        assert (one.row, one.queries, one.mean.tolist()) == (two.row, two.queries, two.mean.tolist())
    assert same(blocks.pack(), other.pack())


def test_packed_blocks_state_is_a_copy() -> None:
    asked, values = zipf(np.random.default_rng(8), 300)
    blocks = Blocks(NEUTRAL)
    for _fifth in blocks.feed(asked, values):
        pass
    packed = blocks.pack()
    before = {name: array.copy() for name, array in packed.items()}
    for _fifth in blocks.feed(asked + np.uint64(1), values):
        pass
    assert same(packed, before)


def same(one: Packed, two: Packed) -> bool:
    return {*one} == {*two} and all(
        one[name].dtype == two[name].dtype and np.array_equal(one[name], two[name]) for name in one
    )


def replaced(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Packed], Packed]:
    return lambda packed: packed | {name: change(packed[name])}


def with_first(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array.flat[0] = value
        return array

    return change


def wrapping(packed: Packed) -> Packed:
    """Four lengths more, which come to 2⁶⁴: nothing, in 64 bits."""
    return packed | {"lengths": np.concatenate([np.full(4, 2**62), packed["lengths"]])}


def twice_in_a_block(packed: Packed) -> Packed:
    """As many keys as before, and fewer queries: the block would get too many."""
    asked = packed["keys"].copy()
    asked[-1] = asked[-2]
    return packed | {"keys": asked}


def far_too_many(packed: Packed) -> Packed:
    """Of one block, which is let go with the next one only, and would be sent to others until then."""
    asked = np.arange(200_000, dtype=np.uint64)
    return packed | {
        "keys": np.concatenate([asked, packed["keys"]]),
        "counts": np.concatenate([np.ones(len(asked), dtype=np.int64), packed["counts"]]),
        "lengths": np.concatenate([[len(asked)], packed["lengths"]]),
    }


def empty_blocks(packed: Packed) -> Packed:
    """None has a query, and each takes a copy of all counts when they are added up."""
    return packed | {"lengths": np.concatenate([np.zeros(20_000, dtype=np.int64), packed["lengths"]])}


HOSTILE: dict[str, Callable[[Packed], Packed]] = {
    "nothing": lambda packed: {},
    "one array fewer": lambda packed: {name: array for name, array in packed.items() if name != "counts"},
    "one array more": lambda packed: packed | {"more": np.zeros(3)},
    "keys with a sign": replaced("keys", lambda keys: keys.astype(np.int64)),
    "keys in a table": replaced("keys", lambda keys: keys[:, None]),
    "fewer keys": replaced("keys", lambda keys: keys[:-1]),
    "a query twice in a block": twice_in_a_block,
    "far too many queries": far_too_many,
    "blocks without a query": empty_blocks,
    "counts that are fractions": replaced("counts", lambda counts: counts / 1),
    "counts of fewer": replaced("counts", lambda counts: counts[1:]),
    "a count of 0": replaced("counts", with_first(0)),
    "a count below 0": replaced("counts", with_first(-5)),
    "no length": replaced("lengths", lambda lengths: lengths[:0]),
    "a length too large": replaced("lengths", lambda lengths: lengths + 1),
    "a length below 0": replaced("lengths", lambda lengths: np.concatenate([lengths, lengths[-1:], -lengths[-1:]])),
    "lengths that wrap around": wrapping,
    "lengths in a table": replaced("lengths", lambda lengths: lengths[:, None]),
    "an open block that is full": replaced("lengths", lambda lengths: np.array([lengths.sum()])),
    "no size": replaced("size", lambda size: size[:0]),
    "two sizes": replaced("size", lambda size: np.concatenate([size, size])),
    "a size that is no array": replaced("size", lambda size: np.array(200)),
    "a size too small": replaced("size", lambda size: size * 0 + 24),
    "a size too large": replaced("size", lambda size: size * 0 + MAX_IN_BLOCK + 1),
    "a size below 0": replaced("size", lambda size: -size),
    "another size": replaced("size", lambda size: size * 2),
    "another variable": replaced("sum", lambda total: np.append(total, 0)),
    "a sum that is not a number": replaced("sum", with_first(np.nan)),
    "a sum without end": replaced("sum", with_first(np.inf)),
    "a sum below 0": replaced("sum", with_first(-1)),
    "a sum of more than all": replaced("sum", with_first(1e6)),
    "a fifth too few": replaced("fifths", lambda fifths: fifths[1:]),
    "a fifth too many": replaced("fifths", lambda fifths: np.concatenate([fifths, fifths[-1:]])),
    "a fifth that is not a number": replaced("fifths", with_first(np.nan)),
    "a fifth below 0": replaced("fifths", with_first(-1)),
    "a fifth of more than all": replaced("fifths", with_first(1e300)),
    "fifths in one row": replaced("fifths", np.ravel),
    "float32": replaced("fifths", lambda fifths: fifths.astype(np.float32)),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.timeout(20)
def test_invalid_blocks_state_is_refused(change: Callable[[Packed], Packed]) -> None:
    rng = np.random.default_rng(9)
    sender, blocks = Blocks(NEUTRAL), Blocks(NEUTRAL)
    for each, queries in ((sender, 950), (blocks, 333)):  # both in the middle of a block and of a fifth
        for _fifth in each.feed(keys(rng, queries), rng.random((queries, 2))):
            pass
    before = pickle.dumps(blocks)
    with pytest.raises(ValueError, match="not the state of blocks"):
        blocks.restore(change(sender.pack()))
    assert pickle.dumps(blocks) == before
    blocks.restore(sender.pack())  # and what is one is still taken


@given(
    asked=st.lists(st.lists(st.integers(0, 50), max_size=24), min_size=1, max_size=3),
    count=st.integers(0, 3),
    size=st.sampled_from([24, 25, 30]),
    value=st.floats(-0.5, 8.0),
)
def test_accepted_state_completes_valid_block(asked: list[list[int]], count: int, size: int, value: float) -> None:
    """A state that is accepted is one that traffic could have left: its next block has so many queries, in 0…1."""
    blocks = Blocks(np.array([0.5]))
    fifths = [value] * sum(len(asked[-1]) >= size * fifth // 5 for fifth in range(1, 5))
    try:
        blocks.restore(
            {
                "keys": np.array([key for block in asked for key in block], dtype=np.uint64),
                "counts": np.array([count for block in asked for _ in block], dtype=np.int64),
                "lengths": np.array([len(block) for block in asked]),
                "size": np.array([size]),
                "fifths": np.array(fifths).reshape(-1, 1),
                "sum": np.array([min(value, 1.0)]),
            }
        )
    except ValueError:
        return
    rng = np.random.default_rng(0)
    missing = size - len(set(asked[-1]))
    assert missing == size - len(asked[-1])
    result = [*blocks.feed(keys(rng, missing), np.ones((missing, 1)))]
    assert len(result) == 5 - len(fifths)
    assert all(0 <= fifth.mean[0] <= 1 + 1e-9 for fifth in result)
    assert 0 <= result[-1].block[0] <= 1 + 1e-9
