"""Reproduce Tables 1, 4, 5 and 9 and Figure 4 of the query embeddings paper on the data sets here."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.experiment import Experiment, second_encoder
from benchmarks.gate.comparisons import FITS, Fit
from benchmarks.markdown import share, table
from benchmarks.searched import EncodedSplit
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.gate.baseline import DEPTH, RankingOutcomes, SearchTrial
from taugate.calibration.gate.gate import GateCandidate, judge
from taugate.calibration.gate.projection import cross_validated
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.metrics.documents import grades_of
from taugate.calibration.metrics.isotropy import Isotropy, isotropy
from taugate.calibration.settings.settings import GateSettings
from taugate.retrieval.index.flat import FlatIndex

HEADING = "Projections"
SETS = (
    "squad_v2_dev",
    "pubmedqa_labelled",
    "covidqa_chunks",
    "cosqa",
    "scifact/train",
    "mixed_large",
    "squadshifts_new_wiki",
    "squadshifts_reddit",
)
_RETENTIONS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.3, 0.1)
_FOLDS = 3  # as the paper's Table 4
_K = 5


@dataclass(frozen=True)
class Measured:
    """One way of projecting: what each query got, recall@10 of each, and the documents' isotropy."""

    outcome: RankingOutcomes
    recall: np.ndarray
    spread: Isotropy


def encoders() -> list[tuple[str, str]]:
    """Name of each encoder at hand, and how a table calls it."""
    second = second_encoder()
    return [(DEFAULT_ENCODER, "MiniLM"), *([(second, "sre")] if second else [])]


def section(experiment: Experiment) -> str:
    """Measure every projection and format the paper's tables."""
    asked = [(name, encoder, title) for encoder, title in encoders() for name in experiment.wanted(SETS)]
    parts: dict[str, list[list[str]]] = {name: [] for name in ("ndcg", "recall", "accuracy", "spread", "curve", "gate")}
    for name, encoder, title in asked:
        encoded, row = experiment.encoded(name, encoder), [name, title]
        trial = SearchTrial.build(encoded.queries, encoded.vectors.answerable, encoded.vectors.documents, _K)
        base = _plain(trial)
        ways = {way: _measured(trial, fit, experiment.seed) for way, fit in FITS.items()}
        parts["ndcg"].append(
            [*row, share(base.outcome.ndcg.mean(), 4), *_changes(base, ways, lambda m: m.outcome.ndcg)]
        )
        parts["recall"].append([*row, share(base.recall.mean(), 4), *_changes(base, ways, lambda m: m.recall)])
        accuracies = [share(each.outcome.accuracy.mean(), 4) for each in (base, *ways.values())]
        parts["accuracy"].append([*row, *accuracies])
        spreads = [f"{share(each.spread.i_a)}, {share(each.spread.i_b)}" for each in (base, *ways.values())]
        parts["spread"].append([*row, *spreads])
        rng = np.random.default_rng([experiment.seed, 4])
        by_retention = cross_validated(trial, _RETENTIONS, rng, _FOLDS)
        parts["curve"].append([*row, *(_percent(each.ndcg, base.outcome.ndcg) for each in by_retention)])
        parts["gate"].append([*row, *_judged(encoded, base.outcome, by_retention[1])])
    head = ["set", "encoder"]
    return f"""\
Every query is answered by a projection that was fitted without it, in {_FOLDS}-fold cross-validation over all answerable queries. What is fitted
on documents uses all of them. Both encoders have 384 dimensions: all-MiniLM-L6-v2, and sre-embedding-model ("sre"), a MiniLM tuned to
other texts, whose similarities lie close together.

### Change of NDCG@10 (%): the paper's Tables 1, 4 and 9

{table([*head, "NDCG@10 without", *FITS], [*parts["ndcg"], _summary(parts["ndcg"])])}

### Change of Recall@10 (%): its Table 5

{table([*head, "Recall@10 without", *FITS], [*parts["recall"], _summary(parts["recall"])])}

### Accuracy@{_K}

{table([*head, "without", *FITS], parts["accuracy"])}

### Isotropy of the documents, I_A and I_B

{table([*head, "without", *FITS], parts["spread"])}

### Query PCA by retention: change of NDCG@10 (%), its Figure 4

{table([*head, *(share(r, 1) if r < 1 else "1" for r in _RETENTIONS)], parts["curve"])}

### What the gate says of query PCA

The gate judges a retention of .9 alone, at a margin of .005 with 95 % confidence. In brackets is the upper limit of the loss.

{table([*head, f"accuracy@{_K} before → after", "loss ≤", "NDCG@10 before → after", "loss ≤", "p", "admitted"], parts["gate"])}
"""


def _plain(trial: SearchTrial) -> Measured:
    positions = FlatIndex.build(trial.documents).search(trial.vectors, trial.depth).positions
    outcome = RankingOutcomes.judge(trial.queries, positions, trial.k)
    return Measured(outcome, _recall(trial, positions), isotropy(trial.documents))


def _measured(trial: SearchTrial, fit: Fit, seed: int) -> Measured:
    """Cross-validated; isotropy under the projection fitted on all queries."""
    rng = np.random.default_rng([seed, 4])
    count = len(trial.queries)
    order, positions = rng.permutation(count), np.empty((count, trial.depth), dtype=np.int64)
    for number in range(_FOLDS):
        fold = np.sort(order[number::_FOLDS])
        projection = fit(trial.vectors[np.setdiff1d(order, fold)], trial.documents, rng)
        index = FlatIndex.build(projection.apply(trial.documents))
        positions[fold] = index.search(projection.apply(trial.vectors[fold]), trial.depth).positions
    whole = fit(trial.vectors, trial.documents, rng).apply(trial.documents)
    return Measured(
        RankingOutcomes.judge(trial.queries, positions, trial.k), _recall(trial, positions), isotropy(whole)
    )


def _recall(trial: SearchTrial, positions: np.ndarray) -> np.ndarray:
    """Return the share of each query's relevant documents among its first 10."""
    found = (grades_of(trial.queries, positions[:, :DEPTH], trial.parents) >= 1).sum(axis=1)
    shares: np.ndarray = found / np.array([len(query.relevant) for query in trial.queries])
    return shares


def _changes(base: Measured, ways: dict[str, Measured], of: Callable[[Measured], np.ndarray]) -> list[str]:
    return [_percent(of(each), of(base)) for each in ways.values()]


def _percent(values: np.ndarray, base: np.ndarray) -> str:
    return f"{100 * (values.mean() / base.mean() - 1):+.1f}"


def _summary(rows: list[list[str]]) -> list[str]:
    """Count the rows that improve, by column."""
    columns = list(zip(*rows, strict=True))[3:]
    return ["improved", "", "", *(f"{sum(float(cell) > 0 for cell in column)}/{len(rows)}" for column in columns)]


def _judged(encoded: EncodedSplit, base: RankingOutcomes, after: RankingOutcomes) -> list[str]:
    (record,) = judge(
        base,
        [GateCandidate("query PCA", "projection", after)],
        SamplingUnits.from_labels(clusters(encoded.queries)),
        GateSettings(),
    )
    cells = []
    for each in (record.accuracy, record.ndcg):
        cells += [f"{share(each.baseline, 4)} → {share(each.candidate, 4)}", f"{each.loss.upper:+.4f}"]
    return [*cells, f"{record.p_adjusted:.3g}", "yes" if record.admitted else "no"]
