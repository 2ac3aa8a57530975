"""Shared state written by other clients: invalid state is replaced."""

from collections.abc import Callable

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from taugate.drift.observations import Observations
from taugate.retrieval.reader import Release
from tests.drift.watched import replaced
from tests.service.drift.processes import ALARM, InRedis, StateStore
from tests.service.drift.traffic import SIGNAL, foreign_queries, observed


def cut(state: bytes) -> bytes:
    return state[: len(state) // 2]


def without_its_end(state: bytes) -> bytes:
    """The blocks of a process that has seen nothing, and no alarms of feedback."""
    arrays = load_tensors(state)
    kept = {name: array for name, array in arrays.items() if not name.startswith("feedback.quality.")}
    nothing = {"keys": arrays["queries.blocks.keys"][:0], "counts": arrays["queries.blocks.counts"][:0]}
    nothing |= {"lengths": np.zeros(1, dtype=np.int64), "fifths": arrays["queries.blocks.fifths"][:0]}
    nothing |= {"sum": np.zeros_like(arrays["queries.blocks.sum"])}
    return save_tensors(kept | {f"queries.blocks.{name}": array for name, array in nothing.items()})


STRANGE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda state: b"",
    "words": lambda state: b"garbage",
    "half of it": cut,
    "more than it": lambda state: state + b"x",
    "half of another one": without_its_end,
    "tensors of something else": lambda state: save_tensors({"a": np.zeros(3)}),
    "no tensors": lambda state: save_tensors({}),
    "other widths": replaced("queries.blocks.sum", lambda array: np.zeros(3)),
    "other numbers": replaced(f"queries.{SIGNAL}.peak", lambda array: array.astype(np.float32)),
    "not a number": replaced(f"queries.{SIGNAL}.blocks", lambda array: array * np.nan),
    "more of an open block than there can be": replaced("queries.blocks.sum", lambda array: array - 1e6),
    "counts below any": replaced("queries.blocks.counts", lambda array: -array),
    "repeated keys": replaced("queries.blocks.keys", lambda array: array * 0),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE.keys())
def test_invalid_shared_state_is_replaced(
    place: StateStore, release: Release, needed: int, strange: Callable[[bytes], bytes]
) -> None:
    """As if nobody had written anything: the states are equal to the last bit."""
    asked = observed(release, foreign_queries(needed + 600))  # with a block in the past, and one that is open
    one, undisturbed = place.join(release), place.join(release).alarms.monitor
    one.weighs(asked.take(slice(needed + 5)))
    undisturbed.update(asked)
    (state,) = place.states()
    place.write(strange(state))
    for start in range(needed + 5, needed + 605, 120):
        one.weighs(asked.take(slice(start, start + 120)))
        assert SIGNAL in one.told["signals"]
        assert one.shows("shared") == 1
        assert 1 <= (one.shows("evidence", signal=SIGNAL) or 0) <= 2
    assert one.shows("blocks_total") == (needed + 600) // 200
    assert one.alarms.monitor.pack() == undisturbed.pack()
    assert SIGNAL in place.join(release).weighs()["signals"]


def test_extreme_valid_state_does_no_harm(place: StateStore, release: Release, needed: int) -> None:
    """Counts that no service reaches in a thousand years, and blocks after them that ask for the same."""
    asked = observed(release, foreign_queries(needed + 600))
    one = place.join(release)
    one.weighs(asked.take(slice(needed)))
    (state,) = place.states()
    place.write(replaced("queries.blocks.counts", lambda array: array * 0 + (2**63 - 1))(state))
    for _ in range(2):
        one.weighs(asked)
        assert SIGNAL in one.told["signals"]
        assert one.shows("shared") == 1
    assert SIGNAL in place.join(release).weighs()["signals"]


def test_key_of_another_type_is_replaced(in_redis: InRedis, release: Release, seen: Observations) -> None:
    one = in_redis.join(release)
    one.weighs(seen)
    (key,) = in_redis.keys()
    in_redis.redis.client.delete(key)
    in_redis.redis.client.rpush(key, "a list")
    assert one.weighs() == ALARM
    assert one.shows("shared") == 1
    assert in_redis.join(release).weighs() == ALARM
