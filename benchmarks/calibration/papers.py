"""Compute the papers' measures for each encoder and data set, and their correlations: Tables 2 and 3."""

import numpy as np

from benchmarks.experiment import Experiment, second_encoder
from benchmarks.markdown import share, table
from benchmarks.searched import EncodedSplit
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.isotropy import isotropy
from taugate.calibration.metrics.measure import Resamples, measure
from taugate.calibration.metrics.ranking import JudgedQueries, ScoredQueries
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.threshold.decide import bootstrap_threshold
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.vectors.similarity import pair_similarity

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
        row, values = _papers(experiment.encoded(name, encoder), settings)
        rows.append([name, title, *row])
        numbers.append(values)
    columns = {key: np.array([each[key] for each in numbers]) for key in numbers[0]}
    pairs = [
        [f"{x} and {y}", f"{np.corrcoef(columns[x], columns[y])[0, 1]:+.3f}" if len(numbers) > 2 else "", theirs]
        for (x, y), theirs in PAIRS.items()
    ]
    header = ["set", "encoder", "accuracy", "NDCG", "COE", "ROE", "τ(ψ)", "accuracy at τ", "I_A", "I_B"]
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


def _papers(encoded: EncodedSplit, settings: CalibrationSettings) -> tuple[list[str], dict[str, float]]:
    vectors, documents = encoded.vectors.answerable, encoded.vectors.documents
    judged = JudgedQueries.judge(encoded.queries, vectors, FlatIndex.build(documents), settings.k)
    draw = Resamples.draw(
        np.random.default_rng(settings.seed),
        SamplingUnits.from_labels(np.arange(len(judged))),
        len(documents),
        settings,
    )
    random_scores = pair_similarity(vectors, documents, draw.random_documents[:, None])[:, 0]
    found = bootstrap_threshold(judged, draw.rows)
    scored = ScoredQueries(judged, TopK(judged.top.scores[:0], judged.top.positions[:0]), None, None)
    tau = np.float32(found.tau)
    metrics = measure(scored, random_scores, draw, "similarity", tau, settings.overlap_percentile)
    spread = isotropy(documents)
    intervals = [_percent(each) for each in (metrics.accuracy, metrics.ndcg, metrics.coe, metrics.roe)]
    row = [*intervals, f"{share(found.tau)} ({found.psi})", _percent(metrics.accuracy_at_tau)]
    values = {"accuracy": metrics.accuracy.mean, "COE": metrics.coe.mean, "ROE": metrics.roe.mean, "τ": found.tau}
    values |= {"I_A": spread.i_a, "I_B": spread.i_b}
    return [*row, f"{100 * spread.i_a:.1f}", f"{100 * spread.i_b:.1f}"], values


def _percent(interval: Interval) -> str:
    return f"{100 * interval.mean:.1f} ({100 * interval.lower:.0f}–{100 * interval.upper:.0f})"
