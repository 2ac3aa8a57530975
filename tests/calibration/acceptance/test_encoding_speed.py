"""The speed of a precision is that of 16 questions together, whatever else the machine does."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from taugate.calibration.acceptance.cheaper_search import encoding_rates, speed_line
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.fake_encoder import write_fake_encoder


@dataclass
class Clock:
    """Processor time that only the encoders pass."""

    now: float = 0.0
    calls: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class TimedEncoder:
    """Takes so many seconds a batch, one number a batch, the last for all that follow."""

    name: str
    clock: Clock
    seconds: list[float]

    def single_threaded(self) -> Self:
        return self

    def encode(self, texts: Sequence[str], role: str) -> None:
        self.clock.calls.append((self.name, len(texts)))
        self.clock.now += self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]


def test_rate_is_median_of_five_alternations(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("time.process_time", lambda: clock.now)
    int8 = TimedEncoder("int8", clock, [100.0, 9.0, 1.0, 9.0, 2.0, 4.0])  # the first is not timed
    encoders: Any = {"float32": TimedEncoder("float32", clock, [8.0]), "int8": int8}
    assert encoding_rates(encoders, ["question"] * 16) == {"float32": 2.0, "int8": 4.0}
    assert clock.calls == [("float32", 16), ("int8", 16)] * 6


def test_questions_are_encoded_sixteen_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("time.process_time", lambda: clock.now)
    encoders: Any = {"float32": TimedEncoder("float32", clock, [1.0])}
    assert encoding_rates(encoders, ["question"] * 20) == {"float32": 10.0}
    assert {size for _, size in clock.calls} == {16, 4}
    clock.calls.clear()
    encoding_rates(encoders, ["question"] * 1000)
    assert len(clock.calls) == 1 + 5 * 10


def test_speed_line_names_rate_and_runtime(tmp_path: Path) -> None:
    encoder = ExportedEncoder.load(write_fake_encoder(tmp_path / "encoder", ["a text"]))
    assert speed_line(encoder, 412.4, 200.0) == (
        "gate: float32: 412 questions a second here, 16 together on one thread, 2.06 times float32 (onnxruntime)"
    )
