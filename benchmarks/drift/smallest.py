"""Check the smallest shift that a release promises to detect against simulation."""

from dataclasses import replace

import numpy as np

from benchmarks.drift.plan import DriftPlan
from benchmarks.drift.worlds import SETS, DriftWorld, world
from benchmarks.markdown import Target, table, targets
from taugate.drift.observations import Observations, calibration_observations
from taugate.drift.sensitivity import WITHIN, sensitivity

HEADING = "How small a shift can be seen"


def section(plan: DriftPlan) -> str:
    """Simulate the promised shift and half of it, and report how often each is found."""
    rows, shares = [], []
    for name in SETS:
        here = world(plan.data, name, plan.work)
        record = sensitivity(here.release.reference, here.release.manifest.bootstrap.overlap_percentile)
        for signal in ("topk_similarity", "empty_responses", "dropped_share"):
            shifts = record.signals[signal]
            for shift in (shifts.lower, shifts.higher):
                if shift is not None:
                    full, half = (_found(here, signal, part * shift.points, plan) for part in (1.0, 0.5))
                    shares.append(full)
                    rows.append(
                        [name, signal, f"{shift.points:+.3f}", f"{abs(shift.effect):.2f}", f"{full:.0%}", f"{half:.0%}"]
                    )
    return f"""\
`taugate calibrate` computes for each release the smallest shift that its alarms find. The table tests that with {plan.runs} simulated runs of
{WITHIN:,} queries: calibration queries are drawn independently, and all similarities are shifted, or more replies left empty, or more
results dropped.

{table(["set", "signal", "smallest shift", "Cohen's h", "found", "found at half of it"], rows)}

{targets([Target("share of the runs that find the smallest shift, over all rows", float(np.mean(shares)), at_least=0.9)])}
"""


def _found(here: DriftWorld, signal: str, points: float, plan: DriftPlan) -> float:
    """Return the share of runs in which the alarm of the signal goes on."""
    found = 0
    for run in range(plan.runs):
        rng = np.random.default_rng([plan.seed, run])
        monitor = here.monitor()
        monitor.update(_shifted(here, signal, points, rng))
        found += any(alarm.on for alarm in monitor.alarms if alarm.signal == signal)
    return found / plan.runs


def _shifted(here: DriftWorld, signal: str, points: float, rng: np.random.Generator) -> Observations:
    calibration = calibration_observations(here.release.reference)
    seen = calibration.take(rng.integers(0, len(calibration), size=WITHIN))
    seen = replace(seen, key=np.arange(WITHIN, dtype=np.uint64), at=np.arange(WITHIN, dtype=np.float64))
    if signal == "topk_similarity":
        return replace(seen, top=seen.top + np.float32(points))
    if signal == "empty_responses":  # of those with results, as many as it takes lose them all
        lost = rng.random(WITHIN) < points / (seen.kept > 0).mean()
        return replace(seen, kept=np.where(lost, 0, seen.kept).astype(np.float32))
    k = seen.top.shape[1]
    lost = rng.random((WITHIN, k)) < points / (seen.kept.mean() / k)
    dropped = (lost & (np.arange(k) < seen.kept[:, None])).sum(axis=1)
    return replace(seen, kept=(seen.kept - dropped).astype(np.float32))
