"""The state of a monitor: packed, restored elsewhere, and validated."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load, save

from taugate.drift.monitor import Monitor
from taugate.drift.observations import Observations
from taugate.drift.signals import Bounds, Rules, theta_of
from taugate.release.queries import Reference
from tests.drift.similarities import bursts, reference, replies, traffic
from tests.drift.watched import CALIBRATION, monitor, on, replaced


def shifted(calibration: Reference, by: float) -> Reference:
    """Another encoder, whose similarities are all higher by so much: every share stays as it is."""
    step = np.float32(by)
    return replace(
        calibration, top=calibration.top + step, correct=calibration.correct + step, random=calibration.random + step
    )


def test_fingerprint_depends_on_release_and_rules() -> None:
    rng = np.random.default_rng(15)
    ordinary = {"roe": Bounds(np.array([0.01]), np.array([0.3]))}
    of: dict[str, Callable[[], Monitor]] = {
        "default": monitor,
        "another effect": lambda: monitor(Rules(smallest_effect=0.2)),
        "another run length": lambda: monitor(Rules(average_run_length=1e8)),
        "another block": lambda: monitor(Rules(block=400)),
        "blocks by themselves": lambda: monitor(Rules(block="auto")),
        "a baseline": lambda: Monitor(CALIBRATION, theta_of(CALIBRATION, 5), Rules(), ordinary),
        "another calibration": lambda: monitor(calibration=reference(rng)),
        "another encoder": lambda: monitor(calibration=shifted(CALIBRATION, 0.25)),
        "another percentile": lambda: Monitor(CALIBRATION, theta_of(CALIBRATION, 6)),
    }
    fingerprints = {name: make().fingerprint for name, make in of.items()}
    alike = [{name for name in of if fingerprints[name] == each} for each in set(fingerprints.values())]
    assert [names for names in alike if len(names) > 1] == []
    again = monitor()
    assert again.fingerprint == fingerprints["default"]


def test_fingerprint_does_not_depend_on_traffic() -> None:
    for rules in (Rules(), Rules(block="auto")):
        watched = monitor(rules)
        before = watched.fingerprint
        watched.update(bursts(np.random.default_rng(16), 20_000, 1000, 0.09))
        assert watched.fingerprint == before


def weighed(rng: np.random.Generator, rules: Rules | None = None) -> Monitor:
    """In the middle of an alarm, of a block and of a fifth."""
    watched = monitor(rules)
    watched.update(traffic(rng, 3000))
    assert on(watched.update(traffic(rng, 3095, mean=0.3)))
    watched.judge(replies(rng, 777, 0.8))
    return watched


@pytest.mark.parametrize("block", [200, "auto", 2000])
def test_restored_monitor_continues_identically(block: int | str) -> None:
    rng = np.random.default_rng(17)
    rules = Rules(block=block, average_run_length=1e6)
    watched, other = weighed(rng, rules), monitor(rules)
    other.restore(watched.pack())
    assert [alarm.on for alarm in other.alarms] == [alarm.on for alarm in watched.alarms]
    assert other.queries.blocks.size == watched.queries.blocks.size
    remaining = Observations.joined([traffic(rng, 20_000), traffic(rng, 5000, mean=0.4)])
    judgements = replies(rng, 3000, 0.6)
    changes = watched.update(remaining)
    assert {change.on for change in changes} == {True, False}
    assert other.update(remaining) == changes
    assert other.judge(judgements) == watched.judge(judgements)
    assert other.pack() == watched.pack()


def test_packed_monitor_state_is_small() -> None:
    """At any time: what is kept of each query takes 16 bytes."""
    rng = np.random.default_rng(18)
    watched = monitor()
    for _ in range(4):
        watched.update(traffic(rng, 5000))
        watched.judge(replies(rng, 5000, 1.0))
        assert len(watched.pack()) < 2 * 16 * 4200 + 10_000


def test_replicas_taking_turns_match_one_monitor() -> None:
    """Each takes the state of the one before, adds what it saw, and leaves it."""
    rng = np.random.default_rng(19)
    seen = Observations.joined([traffic(rng, 3000), traffic(rng, 2000, mean=0.45), traffic(rng, 4000)])
    alone, replicas = monitor(), [monitor() for _ in range(3)]
    state, changes = alone.pack(), []
    for turn, start in enumerate(range(0, len(seen), 333)):
        replica = replicas[turn % 3]
        replica.restore(state)
        result = replica.update(seen.take(slice(start, start + 333)))
        changes += [replace(change, row=start + change.row) for change in result]
        state = replica.pack()
    assert changes == alone.update(seen)
    assert len(changes) >= 4


def of_bfloat16(packed: bytes) -> bytes:
    """A type that NumPy does not have."""
    return packed.replace(b'"dtype":"F64"', b'"dtype":"B16"', 1)


TOPK = "queries.topk_similarity."

HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda packed: b"",
    "garbage": lambda packed: b"x" * 200,
    "cut short": lambda packed: packed[:-8],
    "longer": lambda packed: packed + b"x" * 8,
    "a header of 2⁶³ bytes": lambda packed: b"\xff" * 7 + b"\x7f" + packed[8:],
    "an empty header": lambda packed: b"\x02" + b"\x00" * 7 + b"{}",
    "a type that is none": of_bfloat16,
    "without an alarm": lambda packed: save(
        {name: each for name, each in load(packed).items() if not name.startswith("queries.roe.")}
    ),
    "of another alarm as well": lambda packed: save(load(packed) | {"queries.more.on": np.array([True])}),
    "another array": lambda packed: save(load(packed) | {"more": np.zeros(3)}),
    "blocks of another size": replaced("queries.blocks.size", lambda size: size * 50),
    "blocks of the smallest size": replaced("feedback.blocks.size", lambda size: size // 8),
    "a sum of more than all": replaced("queries.blocks.sum", lambda total: total + 1e6),
    "a sum below 0": replaced("queries.blocks.sum", lambda total: total - 1e6),
    "a count below 0": replaced("queries.blocks.counts", lambda counts: -counts),
    "evidence that is not a number": replaced(TOPK + "blocks", lambda logs: logs * np.nan),
    "evidence in one row": replaced(TOPK + "blocks", np.ravel),
    "means beyond 1": replaced(TOPK + "since", lambda since: np.concatenate([since, since + 1])),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.filterwarnings("error")
def test_invalid_monitor_state_is_refused(change: Callable[[bytes], bytes]) -> None:
    packed = weighed(np.random.default_rng(20)).pack()
    with pytest.raises(ValueError, match="not the state"):
        monitor().restore(change(packed))


def test_state_of_other_block_size_is_refused() -> None:
    rng = np.random.default_rng(21)
    states = {block: weighed(rng, Rules(block=block)).pack() for block in (200, 400, "auto")}
    for block, packed in states.items():
        for other in states:
            watched = monitor(Rules(block=other))
            if other == block:
                watched.restore(packed)
            else:
                with pytest.raises(ValueError, match="not the state"):
                    watched.restore(packed)


@pytest.mark.filterwarnings("error")
def test_corrupted_state_is_refused_or_harmless() -> None:
    """Three hundred times one byte: what is taken all the same goes on, with evidence that is a number."""
    rng = np.random.default_rng(22)
    packed = weighed(rng).pack()
    header = 8 + int.from_bytes(packed[:8], "little")
    seen = traffic(rng, 400)
    taken = 0
    for trial in range(300):
        changed = bytearray(packed)
        place = int(rng.integers(header)) if trial % 2 else int(rng.integers(header, len(packed)))
        changed[place] ^= int(rng.integers(1, 256))
        watched = monitor()
        try:
            watched.restore(bytes(changed))
        except ValueError:
            continue
        taken += 1
        watched.update(seen)
        assert all(0 <= alarm.share_of_threshold <= 2 for alarm in watched.alarms)
        assert all(alarm.log_evidence == alarm.log_evidence for alarm in watched.alarms)
    assert taken > 50  # most bytes are of keys, any of which is one
