"""Compute the papers' measures for each encoder and data set, and their correlations: Tables 2 and 3."""

import numpy as np

from benchmarks.experiment import Experiment, second_encoder
from benchmarks.markdown import table
from benchmarks.paper_figures import HEADER, PaperFigures
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.settings.settings import CalibrationSettings

HEADING = "The papers' measures"
SETS: tuple[str, ...] = (
    "squad_v2_dev",
    "pubmedqa_labelled",
    "covidqa_chunks",
    "cosqa",
    "scifact/train",
    "scifact/test",
    "mixed_large",
)
SETS += ("squadshifts_new_wiki", "squadshifts_reddit")
SECOND_SETS: tuple[str, ...] = ("squad_v2_dev", "pubmedqa_labelled", "covidqa_chunks", "cosqa")
# Their Table 3, averages over three domains: what they found between a dozen encoders on one data set.
PAIRS = {
    ("accuracy", "COE"): "0.894",
    ("accuracy", "ROE"): "−0.05",
    ("τ", "ROE"): "0.46",
    ("accuracy", "τ"): "",
    ("accuracy", "I_A"): "−0.108",
    ("accuracy", "I_B"): "0.005",
}


def section(experiment: Experiment) -> str:
    """Compute the papers' measures of each set, and their correlations."""
    settings = CalibrationSettings(holdout=0, seed=experiment.seed)
    second = second_encoder()
    asked = [(name, DEFAULT_ENCODER, "all-MiniLM-L6-v2") for name in experiment.wanted(SETS)]
    asked += [(name, second, "sre-embedding-model") for name in experiment.wanted(SECOND_SETS) if second]
    rows, numbers = [], []
    for name, encoder, title in asked:
        encoded = experiment.encoded(name, encoder)
        found = PaperFigures.of(encoded.queries, encoded.vectors.answerable, encoded.vectors.documents, settings)
        rows.append([name, title, *found.row()])
        numbers.append(_values(found))
    columns = {key: np.array([each[key] for each in numbers]) for key in numbers[0]}
    pairs = [
        [f"{x} and {y}", f"{np.corrcoef(columns[x], columns[y])[0, 1]:+.3f}" if len(numbers) > 2 else "", theirs]
        for (x, y), theirs in PAIRS.items()
    ]
    header = ["set", "encoder", *HEADER]
    return f"""\
All answerable queries, K = {settings.k}, {settings.bootstraps} bootstraps of {settings.sample_size} queries, with 95 % intervals in brackets. All figures but τ are in percent.
[calibration.md](../calibration.md) defines COE, ROE and ψ; θ is the {settings.overlap_percentile:.0f}th percentile of the top K similarities. I_A and I_B measure
the isotropy of the document vectors.

{table(header, rows)}

These are Pearson correlations over the {len(numbers)} rows. The papers compare encoders on one data set; these rows mix data sets and encoders,
so they answer another question. `taugate release correlations` answers the papers' question for three or more releases of one data
set.

{table(["", "here", "papers, mean of three domains"], pairs)}
"""


def _values(found: PaperFigures) -> dict[str, float]:
    metrics, spread = found.metrics, found.spread
    values = {"accuracy": metrics.accuracy.mean, "COE": metrics.coe.mean, "ROE": metrics.roe.mean}
    return values | {"τ": found.threshold.tau, "I_A": spread.i_a, "I_B": spread.i_b}
