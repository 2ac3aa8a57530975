"""Count how often the gate admits vectors that lose the margin: noise is added to the documents until they do."""

import numpy as np

from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, verdict
from benchmarks.searched import EncodedSplit
from taugate.calibration.metrics.inputs import clusters, ranking_outcomes
from taugate.evidence.acceptance import DEPTH, GateCandidate, RankingOutcomes, judge
from taugate.evidence.clusters import ClusterIds, SamplingUnits
from taugate.evidence.rules import CONFIDENCE, GateSettings
from taugate.policy.arrays import dense_of
from taugate.retrieval.index.flat import FlatIndex

HEADING = "Admitted though worse"
SETS = ("squad_v2_dev", "covidqa_chunks", "scifact/train", "cosqa")
_MARGINS = (0.01, 0.02, 0.05)
_K, _TRIALS, _HALVINGS = 5, 200, 7  # a share of .05 of so many trials is known to ± .015; the noise to 1 %


def section(experiment: Experiment) -> str:
    """Judge degraded vectors on resampled documents of every set."""
    rows, largest = [], 0.0
    for name in experiment.wanted(SETS):
        split = experiment.encoded(name)
        labels = np.unique(clusters(split.queries), return_inverse=True)[1]
        sizes = np.bincount(labels)
        baseline = _outcomes(split, 0.0, experiment.seed)
        order, first = np.argsort(labels, kind="stable"), np.concatenate([[0], np.cumsum(sizes)])
        for margin in _MARGINS:
            worse, loss = _worse(split, baseline, labels, margin, experiment.seed)
            rng = np.random.default_rng([experiment.seed, round(1000 * margin)])
            admitted = 0
            for _ in range(_TRIALS):
                drawn = rng.integers(0, len(sizes), size=len(sizes))
                queries = np.concatenate([order[first[document] : first[document + 1]] for document in drawn])
                units = SamplingUnits.from_clusters(np.repeat(np.arange(len(drawn)), sizes[drawn]))
                before, after = (
                    RankingOutcomes(each.accuracy[queries], each.ndcg[queries]) for each in (baseline, worse)
                )
                record = judge(before, [GateCandidate("noise", "precision", after)], units, GateSettings(margin))[0]
                admitted += record.admitted
            largest = max(largest, admitted / _TRIALS)
            rows.append([name, f"{len(sizes):,}", share(margin), share(loss, 4), share(admitted / _TRIALS)])
    return f"""\
Noise is added to the documents of a set until accuracy@{_K} or NDCG@{DEPTH} of the average document loses the margin, over all queries. The gate then
judges {_TRIALS} samples of the documents, drawn with replacement, each with its queries. Admitting any of them is wrong: at most
{share(1 - CONFIDENCE, 2)} were wanted, and the largest share is {share(largest)}, {verdict(reached=largest <= 1 - CONFIDENCE)}.

{table(["set", "documents with queries", "margin", "true loss", "admitted"], rows)}
"""


def _outcomes(split: EncodedSplit, noise: float, seed: int) -> RankingOutcomes:
    """Search documents with normal noise of this standard deviation."""
    documents = np.asarray(split.vectors.documents)
    noisy = documents + noise * np.random.default_rng(seed).standard_normal(documents.shape).astype(np.float32)
    index = FlatIndex.build(noisy / np.linalg.norm(noisy, axis=1, keepdims=True))
    positions = index.search(dense_of(split.vectors.answerable), DEPTH).positions
    return ranking_outcomes(split.queries, positions, _K)


def _worse(
    split: EncodedSplit, baseline: RankingOutcomes, labels: ClusterIds, margin: float, seed: int
) -> tuple[RankingOutcomes, float]:
    """Find the least noise that loses the margin, by bisection, and return its outcomes and its larger loss."""
    sizes = np.bincount(labels)

    def loss(outcomes: RankingOutcomes) -> float:
        losses = (baseline.accuracy - outcomes.accuracy, baseline.ndcg - outcomes.ndcg)
        return max(float((np.bincount(labels, each) / sizes).mean()) for each in losses)

    low, high = 0.0, 0.01
    found = _outcomes(split, high, seed)
    while loss(found) < margin:
        low, high = high, 2 * high
        found = _outcomes(split, high, seed)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        outcomes = _outcomes(split, middle, seed)
        if loss(outcomes) < margin:
            low = middle
        else:
            high, found = middle, outcomes
    return found, loss(found)
