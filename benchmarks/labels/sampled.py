"""Measure the intervals when queries near the threshold are judged more often than others, on every public set."""

from dataclasses import dataclass

import numpy as np

from benchmarks.experiment import Experiment
from benchmarks.labels.asked import CROPS, SETS, AskedSet, Outcomes, asked_set
from benchmarks.markdown import Target, share, table, targets
from taugate.evidence.few_labels.prediction_powered import labels_and_machine
from taugate.evidence.few_labels.shares import JudgedSample, UnjudgedSample, labels_alone
from taugate.policy.arrays import Float64

HEADING = "Queries judged near the threshold"
SIZES = (50, 100)
_JUDGE = "judge, 3 % wrong"
_TAU = 0.2  # quantile of the best scores that τ is
# Share of the queries, by their best score, that lie below, near and above τ, and share of the judged ones.
_QUERIES, _JUDGED = (0.1, 0.3, 0.6), (0.2, 0.5, 0.3)
_MAX_ASKED = 2100  # queries of a log, judged or not


@dataclass(frozen=True)
class _Row:
    """One set, outcome, machine and number of labels.

    Attributes:
        alone: Coverage with weights.
        both: Coverage with weights.
        unweighted: Coverage of both if the weights are left out.
        ratio: Of mean widths.
        largest: Ratio in any resample.
    """

    name: str
    outcome: str
    machine: str
    labels: int
    truth: float
    r_squared: float
    alone: float
    both: float
    unweighted: float
    ratio: float
    largest: float


def section(experiment: Experiment) -> str:
    """Judge more queries near the threshold, weigh them, and compare the intervals with the truth of all queries."""
    rows = [row for name in experiment.wanted(SETS) for row in _rows(experiment, name)]
    wanted = [
        Target("smallest coverage, labels alone", min(row.alone for row in rows), at_least=0.93),
        Target("smallest coverage, both", min(row.both for row in rows), at_least=0.93),
        Target("largest ratio of widths in any resample", max(row.largest for row in rows), at_most=1.05),
    ]
    sizes = " / ".join(map(str, SIZES))
    header = ["set", "of", "machine", "R²", "truth"]
    header += [f"{what}: {sizes} labels" for what in ("coverage, labels alone", "coverage, both", "without weights")]
    header += ["ratio of widths"]
    cells = []
    for at in range(0, len(rows), len(SIZES)):
        same = rows[at : at + len(SIZES)]
        first = same[0]
        facts: list[object] = [first.name, first.outcome, first.machine, share(first.r_squared, 2), share(first.truth)]
        columns = [("alone", 3), ("both", 3), ("unweighted", 3), ("ratio", 2)]
        facts += [" / ".join(share(getattr(row, of), digits) for row in same) for of, digits in columns]
        cells.append(facts)
    return f"""\
The queries whose best score is near τ say most about τ. So people judge more of these: {100 * _JUDGED[1]:.0f} % of the judged queries are of
the {100 * _QUERIES[1]:.0f} % around τ, {100 * _JUDGED[0]:.0f} % are of the {100 * _QUERIES[0]:.0f} % below these, and {100 * _JUDGED[2]:.0f} % of the {100 * _QUERIES[2]:.0f} % above. Each query has a weight, one over the
probability that it was judged. A fifth of the best scores lie below τ, and *loss* is the share of queries that lose every relevant
result to it. *Without weights* shows what comes of counting each judged query once.

{targets(wanted)}

Without weights, the interval misses the truth in up to {100 * (1 - min(row.unweighted for row in rows)):.0f} % of the resamples.

{table(header, cells)}
"""


def _rows(experiment: Experiment, name: str) -> list[_Row]:
    asked = asked_set(experiment.data, name, experiment.seed)
    best = asked.decisions.max(axis=1)
    tau = np.quantile(best, _TAU, method="lower").astype(np.float32)
    outcomes = {"accuracy": asked.hits, "loss": asked.losses(np.array([tau]))}
    stratum = np.digitize(best, np.quantile(best, np.cumsum(_QUERIES)[:-1]))
    measured: dict[tuple[str, str, int], list[tuple[float, ...]]] = {}
    for number in range(experiment.splits):
        rng = np.random.default_rng([experiment.seed, 23, number])
        queries, documents = _asked(asked, rng)
        for labels in SIZES:
            weights = _judged(stratum[queries], labels, rng)
            for of, found in outcomes.items():
                truth = float(found.true.mean())
                for machine in (CROPS, _JUDGE):
                    trial = _trial(found, machine, queries, documents, weights, truth)
                    measured.setdefault((of, machine, labels), []).append(trial)
    rows = []
    for of, found in outcomes.items():
        for machine in (CROPS, _JUDGE):
            for labels in SIZES:
                trials = np.array(measured[of, machine, labels])
                alone, both, unweighted, width, width_of_both = trials[:, :5].mean(axis=0).tolist()
                truth, explained = float(found.true.mean()), found.r_squared(machine)
                largest = float((trials[:, 4] / trials[:, 3]).max())
                rows.append(
                    _Row(
                        name, of, machine, labels, truth, explained, alone, both, unweighted, width_of_both / width,
                        largest,
                    )
                )  # fmt: skip
    return rows


def _asked(asked: AskedSet, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the queries of a log; returns their positions, and the draws of their documents."""
    queries, draws = asked.drawn(rng)
    some = rng.permutation(len(queries))[:_MAX_ASKED]
    return queries[some], draws[some]


def _judged(stratum: np.ndarray, labels: int, rng: np.random.Generator) -> Float64:
    """Draw the queries that people judge, by stratum; return the weight of each query, 0 if it is not judged."""
    weights = np.zeros(len(stratum))
    for number, of_labels in enumerate(_JUDGED):
        members = np.flatnonzero(stratum == number)
        chosen = rng.choice(members, min(len(members), round(of_labels * labels)), replace=False)
        weights[chosen] = len(members) / max(len(chosen), 1)
    return weights


def _trial(
    outcomes: Outcomes, machine: str, queries: np.ndarray, documents: np.ndarray, weights: Float64, truth: float
) -> tuple[float, ...]:
    true, scores = outcomes.true[queries], outcomes.scores[machine][queries]
    some, rest = weights > 0, weights == 0
    unjudged = UnjudgedSample(scores[rest], documents[rest])
    weighted, plain = (JudgedSample(true[some], scores[some], documents[some], each) for each in (weights[some], None))
    alone, both = labels_alone(weighted, 0.95), labels_and_machine(weighted, unjudged, 0.95)
    unweighted = labels_and_machine(plain, unjudged, 0.95)
    held = [float(found.lower[0] <= truth <= found.upper[0]) for found in (alone, both, unweighted)]
    return (*held, float(alone.width[0]), float(both.width[0]))
