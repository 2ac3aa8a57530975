"""Correlations of the papers' measures over several encoders of one data set, as in Table 3 of the thresholds paper."""

from collections.abc import Sequence

import numpy as np

from taugate.calibration.comparison.encoders import MeasuredEncoder

MIN_ENCODERS = 3  # two points always correlate perfectly

_PAIRS = (
    ("accuracy", "COE"),
    ("accuracy", "ROE"),
    ("accuracy", "τ"),
    ("τ", "ROE"),
    ("accuracy", "I_A"),
    ("accuracy", "I_B"),
    ("accuracy", "Δ, relative"),
    ("accuracy", "familiarity"),
    ("accuracy", "β"),
    ("accuracy", "everyday NDCG@10"),
)


def correlations(encoders: Sequence[MeasuredEncoder]) -> dict[str, float | None]:
    """Correlate the measures of three or more encoders (thresholds paper §4, Table 3).

    A pair of measures is left out unless three encoders have both; its correlation is None if one of them is constant.
    """
    rows = [_row(encoder) for encoder in encoders]
    correlated = {}
    for x, y in _PAIRS:
        values = np.array([(row[x], row[y]) for row in rows if {x, y} <= row.keys()])
        if len(values) >= MIN_ENCODERS:
            constant = (np.ptp(values, axis=0) == 0).any()
            correlated[f"{x} and {y}"] = None if constant else float(np.corrcoef(values.T)[0, 1])
    return correlated


def _row(encoder: MeasuredEncoder) -> dict[str, float]:
    """Return the measures that an encoder has."""
    metrics, isotropy, measures = encoder.metrics, encoder.isotropy, encoder.measures
    row: dict[str, float | None] = {
        "accuracy": metrics.accuracy.mean,
        "COE": metrics.coe.mean,
        "ROE": None if metrics.roe is None else metrics.roe.mean,
        "τ": encoder.papers_tau,
        "I_A": isotropy.i_a,
        "I_B": isotropy.i_b,
    }
    if measures is not None:
        row |= {"Δ, relative": measures.relative_separation, "familiarity": measures.familiarity}
        row |= {"β": measures.decay, "everyday NDCG@10": measures.everyday}
    return {name: value for name, value in row.items() if value is not None}
