"""Does a weight that is chosen on generated queries suit the queries of people?"""

from itertools import combinations

import numpy as np

from benchmarks.experiment import Experiment
from benchmarks.hybrid.fused import SETS, WEIGHTS, FusedSet, ranked_set
from benchmarks.markdown import table

HEADING = "The weight without labels by people"


def section(experiment: Experiment) -> str:
    """Compare crops with queries by people, and choose a weight on half of the sets."""
    rows, by_set = [], []
    for name in experiment.wanted(name for name in SETS if "/" not in name):
        both = (ranked_set(experiment.data, name)[0], FusedSet.crops(experiment.data, name, experiment.seed).ranked())
        people, crops = (
            [100 * (ranked[weight].accuracy - ranked[0.0].accuracy).mean() for weight in WEIGHTS] for ranked in both
        )
        own, chosen = (int(np.argmax([ranked[weight].ndcg.mean() for weight in WEIGHTS])) for ranked in both)
        gains = [f"{gain:+.1f}" for gain in (people[own], crops[chosen], people[chosen])]
        rows.append([name, f"{WEIGHTS[own]:g}", gains[0], f"{WEIGHTS[chosen]:g}", *gains[1:]])
        by_set.append(people)
    gains_by_set = np.array(by_set)
    header = ["set", "best w, people", "gain", "best w, crops", "gain on crops", "gain of this w, people"]
    summary = [
        [words, *(f"{gain:+.1f}" for gain in figures)]
        for words, figures in (("mean", gains_by_set.mean(axis=0)), ("worst set", gains_by_set.min(axis=0)))
    ]
    return f"""\
The weight with the highest NDCG@10 on the queries of people and on crops (`taugate queries --method crop`), and its gain of accuracy@5 in
points. The last column says what the weight that crops choose gives people.

{table(header, rows)}

Crops consist of words of their document, so the largest weight is best for them on every corpus. They say nothing about the weight that
people need, and a data set without labels by people gets one that was chosen on other sets. Gain of accuracy@5 on the queries of people:

{table(["", *(f"w = {weight:g}" for weight in WEIGHTS)], summary)}

{_halves(gains_by_set)}
"""


def _halves(gains: np.ndarray) -> str:
    """Choose on one half of the sets and measure on the other, for all halves."""
    chosen: dict[float, list[np.ndarray]] = {}
    halves = [*combinations(range(len(gains)), len(gains) // 2)]
    for half in halves:
        these, others = gains[list(half)], np.delete(gains, half, axis=0)
        weight = int(np.where(these.min(axis=0) >= 0, these.mean(axis=0), -1).argmax())
        chosen.setdefault(WEIGHTS[weight], []).append(others[:, weight])
    rows = [
        [f"{weight:g}", len(others), f"{np.mean(others):+.1f}", f"{np.min(others):+.1f}"]
        for weight, others in sorted(chosen.items())
    ]
    header = ["chosen", "halves", "mean gain on the other half", "worst set of the other half"]
    return f"""\
Of the weights that lose on no set of one half, the one with the largest mean gain on this half, measured on the other half, for all
{len(halves)} halves:

{table(header, rows)}"""
