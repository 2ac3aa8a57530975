"""COE and ROE of traffic, against the calibration's values for the same queries."""

from pathlib import Path

import numpy as np
import pytest

from taugate.drift.observations import Judgements, calibration_observations
from taugate.drift.signals import MIN_IN_WINDOW, live_overlap
from taugate.registry.catalog import find
from taugate.release.outcome_records import BootstrapRecord
from taugate.retrieval.reader import load
from tests.drift.similarities import judged, reference, traffic

DRAWN = BootstrapRecord(bootstraps=500, sample_size=100, seed=0, holdout=0.3, overlap_percentile=5)
NOBODY = Judgements.none()


def test_calibration_queries_give_manifest_overlap(releases: Path) -> None:
    """But for the random rows, which the calibration draws after its split."""
    release = load(find(releases))
    calibration = release.reference
    shown = judged(np.random.default_rng(0), calibration.correct[calibration.correct_kept])
    live = live_overlap(calibration_observations(calibration), shown, calibration, release.manifest.bootstrap)
    measured = release.manifest.metrics["calibration"]
    for mine, theirs in ((live.coe, measured.coe), (live.expected_coe, measured.coe), (live.roe, measured.roe)):
        assert mine is not None
        assert mine.model_dump() == pytest.approx(theirs.model_dump(), abs=0.01)


def test_unshown_documents_are_taken_from_calibration() -> None:
    """Judged alone, correct documents that were shown would have a COE too high by what is not shown."""
    calibration = reference(np.random.default_rng(0))
    rng = np.random.default_rng(1)
    seen = traffic(rng, 5000)
    live = live_overlap(seen, judged(rng, calibration.correct[calibration.correct_kept]), calibration, DRAWN)
    assert live.coe is not None
    assert live.expected_coe is not None
    assert live.coe.mean == pytest.approx(live.expected_coe.mean, abs=1e-9)
    everything = live_overlap(seen, judged(rng, np.full(200, 1.0)), calibration, DRAWN).coe
    assert everything is not None
    assert everything.mean < 1  # those that are not shown are still missing


def test_drifted_traffic_changes_overlap() -> None:
    calibration = reference(np.random.default_rng(0))
    rng = np.random.default_rng(1)
    as_before = live_overlap(traffic(rng, 5000), NOBODY, calibration, DRAWN)
    alike = live_overlap(traffic(rng, 5000, mean=0.4, random=0.2), NOBODY, calibration, DRAWN)
    assert as_before.roe is not None
    assert alike.roe is not None
    assert alike.roe.lower > as_before.roe.upper


def test_overlap_needs_enough_queries() -> None:
    calibration = reference(np.random.default_rng(0))
    rng = np.random.default_rng(1)
    few = live_overlap(traffic(rng, MIN_IN_WINDOW - 1), judged(rng, np.ones(500)), calibration, DRAWN)
    assert (few.coe, few.expected_coe, few.roe) == (None, None, None)
    nobody = live_overlap(traffic(rng, MIN_IN_WINDOW), judged(rng, np.ones(MIN_IN_WINDOW - 1)), calibration, DRAWN)
    assert nobody.coe is None
    assert nobody.roe is not None
