"""Compare mixtures of stakes for the e-value by their power, where losses fall in different ways."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from benchmarks.evidence.verdicts import ALPHA
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table

HEADING = "Stakes"
_TRIALS = 4000
_IN_FORCE = "in force"
_MIXTURES = {  # stakes and their weights
    "halves": ((1, 0.5, 0.25, 0.125), (0.5, 0.25, 0.125, 0.125)),
    "six, equal": ((1, 0.9, 0.7, 0.5, 0.3, 0.1), (1 / 6,) * 6),
    "half on 1": ((1, 0.8, 0.6, 0.4, 0.2, 0.1), (0.5, 0.1, 0.1, 0.1, 0.1, 0.1)),
    "quarters": ((1, 0.75, 0.5, 0.25), (0.4, 0.2, 0.2, 0.2)),
    _IN_FORCE: ((1, 0.9, 0.8, 0.6, 0.4, 0.2), (0.4, 0.12, 0.12, 0.12, 0.12, 0.12)),
}
_CASES = (
    (360, 0.01),
    (360, 0.02),
    (840, 0.005),
    (840, 0.01),
    (1200, 0.005),
    (2000, 0.005),
    (2000, 0.01),
    (500, 0.02),
    (500, 0.05),
)
_QUERIES = 5  # of a document

Terms = NDArray[np.float64]  # (trials, documents) mean losses


def section(experiment: Experiment) -> str:
    """Measure the power of each mixture."""
    rng = np.random.default_rng([experiment.seed, 3])
    rows, short = [], dict.fromkeys(_MIXTURES, 0.0)
    for documents, margin in _CASES:
        row = [f"{documents:,}", share(margin)]
        names = ["documents", "margin"]
        for name, terms in _worlds(rng, documents, margin):
            powers = {each: _power(terms, margin, *mixture) for each, mixture in _MIXTURES.items()}
            best = max(powers.values())
            short = {each: max(short[each], best - powers[each]) for each in powers}
            row.append(f"{share(powers[_IN_FORCE], 2)} ({share(best, 2)})")
            names.append(name)
        rows.append(row)
    mixtures = [
        [
            name,
            ", ".join(f"{stake:g}" for stake in stakes),
            ", ".join(f"{weight:.3g}" for weight in weights),
            share(short[name]),
        ]
        for name, (stakes, weights) in _MIXTURES.items()
    ]
    return f"""\
The e-value bets against a loss at the margin, and divides its wealth among several stakes, as no single one is best everywhere. A cell
has the power of the mixture that Taugate uses and, in brackets, of the best of the five below, in {_TRIALS:,} trials with a true loss
below the margin. "20 % whole" loses a fifth of the margin, on whole documents; "20 % single" loses it on single queries of documents
with {_QUERIES} each. "± .5 %" loses and gains that share of the queries.

{table(names, rows)}

{table(["mixture", "stakes", "weights", "most that it lacks of the best"], mixtures)}

The mixture in force lacks at most {share(short[_IN_FORCE])} of the best one's power, the others at least {share(min(short[name] for name in short if name != _IN_FORCE))}. These worlds are simulated, and
their documents are all alike; no data set had a part in the choice.
"""


def _worlds(rng: np.random.Generator, documents: int, margin: float) -> Iterator[tuple[str, Terms]]:
    shape = (_TRIALS, documents)
    yield "nothing lost", np.zeros((1, documents))
    for part in (0.2, 0.4):
        yield f"{100 * part:g} % whole", (rng.random(shape) < part * margin).astype(np.float64)
    for part in (0.2, 0.4):
        yield f"{100 * part:g} % single", rng.binomial(_QUERIES, part * margin, shape) / _QUERIES
    for changed in (0.005, 0.01):
        lost, gained = (rng.binomial(_QUERIES, changed, shape) for _ in range(2))
        yield f"± {100 * changed:g} %", (lost - gained) / _QUERIES


def _power(terms: Terms, margin: float, stakes: tuple[float, ...], weights: tuple[float, ...]) -> float:
    """Return the power of the e-value by document (`calibration/risk/e_values.py`) with these stakes."""
    rows, columns = np.nonzero(terms)
    wealth = []
    for stake, weight in zip(np.minimum(stakes, 1 - 1e-6), weights, strict=True):  # a stake of 1 is ruined by one loss
        change = np.bincount(rows, np.log1p(-stake * terms[rows, columns]), minlength=len(terms))
        wealth.append(np.log(weight) + change - terms.shape[1] * np.log1p(-stake * margin))
    return float((logsumexp(wealth, axis=0) >= -np.log(ALPHA)).mean())
