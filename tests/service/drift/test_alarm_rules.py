"""The alarms of one process: canary, rules, and baseline."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taugate.drift.observations import Observations
from taugate.retrieval.reader import Release
from tests.service.drift.processes import ALARM, Process, with_a_baseline
from tests.service.drift.traffic import NO_ALARM, SIGNAL


def test_canary_alarm_is_reported_separately(release: Release, seen: Observations) -> None:
    one = Process(release, None)
    one.alarms.canary(alike=False)
    assert one.told == {"alarm": True, "signals": ["canary"]}
    assert one.weighs(seen) == {"alarm": True, "signals": [SIGNAL, "canary"]}
    one.alarms.canary(alike=True)
    assert one.told == ALARM


def test_baseline_prevents_alarm(release: Release, seen: Observations, tmp_path: Path) -> None:
    path = with_a_baseline(release, tmp_path, 0.0, 1.0)
    one = Process(release, None, drift_baseline=path)
    assert (one.shows("baseline"), one.shows("baseline_refused")) == (1, 0)
    assert one.weighs(seen) == NO_ALARM
    assert Process(release, None).shows("baseline") == 0


def of_another_release(release: Release, folder: Path) -> Path:
    other = release.manifest.model_copy(update={"release_id": "another"})
    return with_a_baseline(replace(release, manifest=other), folder, 0.0, 1.0)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (lambda release, folder: folder / "nowhere", "cannot be read"),
        (lambda release, folder: folder / ("x" * 300), "cannot be read"),
        (lambda release, folder: folder.joinpath("baseline.json", "below"), "cannot be read"),
        (of_another_release, "belongs to release 'another', not to"),
    ],
    ids=["missing", "no possible name", "in a file", "of another release"],
)
def test_unfit_baseline_is_refused_and_logged(
    release: Release,
    seen: Observations,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    path: Callable[[Release, Path], Path],
    reason: str,
) -> None:
    (tmp_path / "baseline.json").write_bytes(b"{}")
    one = Process(release, None, drift_baseline=path(release, tmp_path))
    assert (one.shows("baseline"), one.shows("baseline_refused")) == (0, 1)
    (record,) = caplog.records
    assert record.message == "drift baseline refused; comparing with the calibration"
    assert reason in record.fields["reason"]  # type: ignore[attr-defined]
    assert one.weighs(seen) == ALARM


def test_alarm_threshold_follows_rules(release: Release) -> None:
    rarer = Process(release, None, drift_seldom=1e12)
    usual = Process(release, None)
    assert rarer.shows("alarm_threshold") == pytest.approx((usual.shows("alarm_threshold") or 0) + np.log(1000))
