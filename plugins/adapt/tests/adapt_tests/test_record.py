"""Who decides on admission, and a record that somebody has damaged."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from taugate.data.labelled_queries import LabelledQuery
from taugate.errors import EncoderError
from taugate.release.adaptation import ADAPTATION, StageRecord, TrainingRecord, read_adaptation
from taugate_adapt.linear import LinearMap
from taugate_adapt.pairs import decisive
from taugate_adapt.recipes import EncodedPairs, TriedRecipe, _within_one_error
from tests.adaptation_records import adaptation


def test_human_queries_decide_if_present() -> None:
    human, crop = LabelledQuery("a", "text", {0: 1}), LabelledQuery("b", "text", {0: 1}, origin="crop")
    traffic = LabelledQuery("c", "text", {2: 1}, origin="traffic")
    assert decisive([human, crop, traffic]) == [human, traffic]
    assert decisive([crop]) == [crop]


def test_missing_record_reads_as_none(tmp_path: Path) -> None:
    assert read_adaptation(tmp_path) is None
    assert read_adaptation(Path("sentence-transformers/all-MiniLM-L6-v2")) is None


def test_long_training_record_is_readable(tmp_path: Path) -> None:
    losses = np.random.default_rng(0).random(100_000).tolist()
    stage = StageRecord(stage="layers", steps=len(losses), batch=32, rate=2e-5, bfloat16=True, losses=losses)
    training = TrainingRecord(stages=[stage], merge_weights=[], merge_weight=1, left_out={})
    record = adaptation(None, training=training)
    (tmp_path / ADAPTATION).write_text(record.model_dump_json(indent=2))
    assert read_adaptation(tmp_path) == record


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"recipe": "ft"}'])
def test_damaged_record_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / ADAPTATION).write_bytes(content)
    with pytest.raises(EncoderError, match=r"adaptation\.json: not a record of taugate adapt"):
        read_adaptation(tmp_path)


def test_whitening_within_one_error_is_equal() -> None:
    learned = LinearMap(np.eye(2, dtype=np.float32), np.zeros(2, dtype=np.float32))
    pairs = cast("EncodedPairs", None)  # nothing is searched
    best = TriedRecipe("whitening", learned, np.full(100, 0.5), None, pairs)
    spread = np.tile([0.1, -0.1], 50)  # whose standard error is 0.01
    assert _within_one_error(TriedRecipe("whitening", learned, 0.491 + spread, None, pairs), best)
    assert not _within_one_error(TriedRecipe("whitening", learned, 0.489 + spread, None, pairs), best)
