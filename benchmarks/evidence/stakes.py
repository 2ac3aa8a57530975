"""Compare mixtures of stakes in simulated worlds: documents of equal and unequal sizes, with and without gains."""

import sys
from collections import defaultdict

import numpy as np

import taugate.calibration.risk.e_values as e_values

_ALL = 1 - 1e-6
# θ, the multiple of the smallest c, and the share of the initial wealth.
MIXTURES = {
    "four": [[_ALL, 1, 0.3], [_ALL, 1.5, 0.3], [0.8, 1, 0.2], [0.6, 1.5, 0.2]],
    "four, wider": [[_ALL, 1, 0.4], [_ALL, 1.25, 0.25], [0.75, 1, 0.15], [0.6, 1.5, 0.2]],
    "six": [[_ALL, 1, 0.4], [0.9, 1, 0.12], [0.8, 1, 0.12], [0.6, 1, 0.12], [0.4, 1, 0.12], [0.2, 1, 0.12]],
    "three": [[_ALL, 1, 0.5], [0.95, 1, 0.3], [0.9, 1.3, 0.2]],
    "three, even": [[_ALL, 1, 0.4], [_ALL, 1.05, 0.3], [0.9, 1.3, 0.3]],
    "three, high": [[_ALL, 1, 0.5], [_ALL, 1.05, 0.3], [0.9, 1.3, 0.2]],
    "guarded": [[_ALL, 1, 0.5], [0.95, 1, 0.34], [0.9, 1.3, 0.12], [0.4, 1.3, 0.04]],
    "guarded, high": [[_ALL, 1, 0.52], [0.95, 1, 0.3], [0.9, 1.3, 0.14], [0.4, 1.3, 0.04]],
}
SIZES = {
    "equal": lambda rng, count: np.full(count, 5.0),
    "geometric": lambda rng, count: rng.geometric(0.2, count).astype(float),
    "lognormal": lambda rng, count: np.ceil(rng.lognormal(1.0, 1.0, count)),
}
NDCG = (1 - 1 / np.log2(3), 1 / np.log2(3) - 0.5, 0.5 - 1 / np.log2(5), 0.387, 0.3, 0.1, 0.05)
TRIALS = 300


def power(mixture, weights, terms, delta):
    e_values.MIXTURE = np.array(mixture)
    bets = e_values.DocumentBets.against(delta, weights)
    rows, columns = np.nonzero(terms)
    wealth = [
        np.bincount(rows, np.log1p(-stakes[columns] * terms[rows, columns]), minlength=len(terms))
        for stakes in bets.stakes(weights)
    ]
    return float((e_values.log_e(np.array(wealth), bets.log_worst(delta)) >= np.log(20)).mean())


def graded(rng, sizes, share):
    """A share of the queries moves by one of the differences of NDCG, up or down."""
    documents, owners = len(sizes), np.repeat(np.arange(len(sizes)), sizes.astype(int))
    terms = np.zeros((TRIALS, documents))
    for row in terms:
        changed = np.flatnonzero(rng.random(len(owners)) < share)
        values = rng.choice([1, -1], len(changed)) * rng.choice(NDCG, len(changed))
        row[:] = np.bincount(owners[changed], values, minlength=documents) / sizes
    return terms


def worlds(rng):
    for documents in (350, 800, 1500):
        for draw in SIZES.values():
            n = draw(rng, documents)
            number, one, shape = n.astype(int), np.ones(documents), (TRIALS, documents)
            for delta in (0.01, 0.02, 0.05):
                for whole in (0, 0.1, 0.5):
                    for part in (0.2, 0.4, 0.6):
                        gone = rng.random(shape) < delta * part * whole
                        single = rng.binomial(number, delta * part * (1 - whole), shape) / n
                        yield "certificate", n, np.where(gone, 1.0, single), delta
            for delta in (0.005, 0.01, 0.02):
                for change in (0.0025, 0.005, 0.01):
                    terms = (rng.binomial(number, change, shape) - rng.binomial(number, change, shape)) / n
                    yield "single queries ±", one, terms, delta
                    yield "single queries ±, average query", n, terms, delta
                for part in (0.2, 0.4):
                    yield "single queries lost", one, rng.binomial(number, delta * part, shape) / n, delta
                    yield "whole documents lost", one, (rng.random(shape) < delta * part).astype(float), delta
                luck = rng.random(shape)
                yield "whole documents ±", one, (luck < 0.002).astype(float) - (luck > 0.998), delta
                for change in (0.03, 0.08, 0.15):
                    yield "NDCG ±", one, graded(rng, n, change), delta


def main():
    found = defaultdict(list)
    for name, weights, terms, delta in worlds(np.random.default_rng(int(sys.argv[1]))):
        powers = {mixture: power(parts, weights, terms, delta) for mixture, parts in MIXTURES.items()}
        if max(powers.values()) > 0.03 and min(powers.values()) < 0.99:
            found[name].append(powers)
            found["all"].append(powers)
    for name, rows in found.items():
        best = np.array([max(row.values()) for row in rows])
        cells = [np.array([row[mixture] for row in rows]) for mixture in MIXTURES]
        print("|", name, "|", len(rows), "|", " | ".join(f"{c.mean():.3f}, {(best - c).max():.2f}" for c in cells), "|")


if __name__ == "__main__":
    main()
