"""Measure what a threshold from judged traffic loses on queries that nobody has asked yet."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.experiment import Experiment
from benchmarks.markdown import Target, share, table, targets
from benchmarks.traffic.users import SearchedSet, Traffic, judged_traffic
from taugate.calibration.labels.machine import losses
from taugate.calibration.labels.shares import JudgedSample
from taugate.calibration.labels.threshold import LossEstimates, candidate_thresholds
from taugate.calibration.metrics.clusters import clusters
from taugate.retrieval.vectors.similarity import Float32

HEADING = "The promise on unseen queries"
SETS = ("squadshifts_new_wiki", "squadshifts_reddit", "squad_v2_dev")
_SHARES = (0.05, 0.1)  # of the results below τ that are shown
_LIMIT = 0.1
_CONFIDENCE = 0.95
_LOST_BEFORE = 0.3  # share of hits that the threshold in force loses: it has to be found out from the traffic


@dataclass(frozen=True)
class _Trial:
    """One split of a set into users' queries and unseen ones.

    Attributes:
        labels: Queries that `taugate traffic` labelled.
        before: Loss on unseen queries at the τ in force, and at the τ from the labels with and without their weights.
        weighted: Loss on unseen queries at the τ in force, and at the τ from the labels with and without their weights.
        unweighted: Loss on unseen queries at the τ in force, and at the τ from the labels with and without their
            weights.
        kept: Share of results that these three keep.
    """

    labels: int
    before: float
    weighted: float
    unweighted: float
    kept: tuple[float, float, float]


def section(experiment: Experiment) -> str:
    """Let users judge what they are shown, take τ from the labels, and apply it to queries about other documents."""
    trials = {
        (name, explored): [*_trials(SearchedSet.read(experiment.data, name), explored, experiment)]
        for name in experiment.wanted(SETS)
        for explored in _SHARES
    }
    every = [trial for each in trials.values() for trial in each]
    wanted = [
        Target("trials above δ, with weights", sum(t.weighted > _LIMIT for t in every) / len(every), at_most=0.07),
        Target("trials above δ, without", sum(t.unweighted > _LIMIT for t in every) / len(every), at_least=0.93),
    ]
    header = [
        "Set",
        "explored",
        "labels",
        "before",
        "with weights",
        "above δ",
        "without",
        "above δ",
        "kept: before, with, without",
    ]
    return f"""\
δ is {_LIMIT:g}. The threshold in force loses {_LOST_BEFORE:.0%} of the hits of the users' queries. From the labels, τ is the strictest
of at most 100 candidates whose one-sided {_CONFIDENCE:.0%} limit of the loss is δ or less. *Before*, *with weights* and *without* are
mean losses on unseen queries, which are about other documents; *above δ* is the share of {len(every) // len(trials)} trials that lose
more than δ.

{table(header, [_row(name, explored, each) for (name, explored), each in trials.items()])}

{targets(wanted)}"""


def _trials(searched: SearchedSet, explored: float, experiment: Experiment) -> Iterator[_Trial]:
    for number in range(experiment.splits):
        rng = np.random.default_rng([experiment.seed, number])
        documents = searched.documents.max() + 1
        asked = (rng.permutation(documents) < documents / 2)[searched.documents]
        users, unseen = np.flatnonzero(asked), np.flatnonzero(~asked)
        best = np.where(searched.relevant, searched.decisions, -np.inf).max(axis=1)[users]
        before = float(np.quantile(best[np.isfinite(best)], _LOST_BEFORE))
        traffic = judged_traffic(searched, users, before, share=explored, rng=rng)
        candidates = candidate_thresholds(searched.decisions[users])
        taus = [before, *(_threshold(searched, traffic, candidates, weighted=each) for each in (True, False))]
        kept = [searched.kept(unseen, tau) for tau in taus]
        lost = [searched.loss(unseen, tau) for tau in taus]
        yield _Trial(len(traffic.labelled), lost[0], lost[1], lost[2], (kept[0], kept[1], kept[2]))


def _threshold(searched: SearchedSet, traffic: Traffic, candidates: Float32, *, weighted: bool) -> float:
    """Return the safe threshold, the lowest candidate where none is.

    Args:
        weighted: Whether the weights are used.
    """
    outcomes = losses(traffic.relevant, searched.decisions[traffic.rows], candidates)
    weights = traffic.weights if weighted else None
    judged = JudgedSample(outcomes, np.zeros_like(outcomes), clusters(traffic.labelled), weights=weights)
    safe = LossEstimates.of(candidates, judged, None, _CONFIDENCE).strictest(_LIMIT).safe
    return float(candidates[0]) if safe is None else safe


def _row(name: str, explored: float, trials: list[_Trial]) -> list[str]:
    weighted, unweighted = (np.array([getattr(t, each) for t in trials]) for each in ("weighted", "unweighted"))
    kept = np.mean([trial.kept for trial in trials], axis=0)
    return [
        name,
        f"{explored:g}",
        f"{np.mean([trial.labels for trial in trials]):,.0f}",
        share(float(np.mean([trial.before for trial in trials]))),
        share(float(weighted.mean())),
        share(float((weighted > _LIMIT).mean())),
        share(float(unweighted.mean())),
        share(float((unweighted > _LIMIT).mean())),
        ", ".join(map(share, kept.tolist())),
    ]
