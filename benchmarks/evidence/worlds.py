"""Worlds of known truth: which document has how many queries, and how losses of a known mean fall on them."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.experiment import Experiment
from taugate.calibration.metrics.inputs import clusters
from taugate.data.beir import read_dataset
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.losses import Statement

Counts = NDArray[np.int64]  # queries, with a sign if some are gained
Rates = NDArray[np.float64]

SETS = (
    "squad_v2_dev",
    "covidqa_chunks",
    "pubmedqa_labelled",
    "scifact",
    "cosqa",
    "squadshifts_new_wiki",
    "squadshifts_reddit",
    "mixed_large",
)
_EQUAL = ((100, 10), (400, 20), (1200, 10))  # documents, queries of each
_HELD = 4.0  # if only the largest documents lose they have so many times the loss, and each is lost one time in four


@dataclass(frozen=True)
class Structure:
    """sizes: (d,) queries of each document."""

    name: str
    sizes: Counts

    @classmethod
    def read(cls, data: Path, name: str) -> Self:
        """Read the clusters of a data set's answerable queries."""
        with tempfile.TemporaryDirectory() as spool:
            labels = clusters(read_dataset(data / name, "test", Path(spool)).answerable)
        return cls(name, np.bincount(labels).astype(np.int64))

    @property
    def units(self) -> SamplingUnits:
        """Number its queries, document by document."""
        return SamplingUnits.from_clusters(np.repeat(np.arange(len(self.sizes)), self.sizes))

    @property
    def counted(self) -> Self:
        """The documents with as many queries as count by default in a certificate."""
        cap = self.units.capped(None).cap
        return self if cap is None or self.units.unit == "query" else replace(self, sizes=np.minimum(self.sizes, cap))


def structures(experiment: Experiment) -> list[Structure]:
    """Return documents with equally many queries, and those of the public sets."""
    equal = [Structure(f"{count:,} × {size}", np.full(count, size)) for count, size in _EQUAL]
    return equal + [Structure.read(experiment.data, name) for name in experiment.wanted(SETS)]


@dataclass(frozen=True)
class Fall:
    """The way in which a mean loss falls on documents.

    Attributes:
        whole: Share of it that falls on whole documents, the rest on single queries.
        gains: Queries gained for each that is lost on balance.
        on: All documents, the largest ones, or as the bound for queries has it at worst.
        found: Share of the queries whose answer is found and can be lost, each by chance.
    """

    name: str
    whole: float
    gains: float = 0.0
    on: str = "all"
    found: float = 1.0

    def draw(
        self, rng: np.random.Generator, structure: Structure, mean: float, statement: Statement, trials: int
    ) -> "Drawn":
        """So many trials with the sizes as they are."""
        chances = np.broadcast_to(self._whole(structure.sizes, mean, statement), len(structure.sizes))
        places = np.broadcast_to(np.arange(len(chances)), (trials, len(chances)))
        return self._draw(rng, structure.sizes, chances, mean, places)

    def draw_anew(
        self, rng: np.random.Generator, structure: Structure, mean: float, statement: Statement, trials: int
    ) -> "Drawn":
        """Draw the documents with replacement in each trial, together with their losses."""
        chances = np.broadcast_to(self._whole(structure.sizes, mean, statement), len(structure.sizes))
        places = rng.integers(0, len(chances), size=(trials, len(chances)))
        return self._draw(rng, structure.sizes, chances, mean, places)

    def _whole(self, sizes: Counts, mean: float, statement: Statement) -> Rates:
        """Probability that a document is lost whole, less that it is gained whole; (1,) or (d,)."""
        if self.on == "all":
            return np.array([mean * self.whole])
        weights = sizes.astype(np.float64) if statement == "query" else np.ones(len(sizes))
        lost = mean * weights.sum()
        if self.on == "the largest":
            order = np.argsort(-sizes, kind="stable")
            held = order[: int(np.searchsorted(np.cumsum(weights[order]), _HELD * lost)) + 1]
            return np.where(np.isin(np.arange(len(sizes)), held), lost / weights[held].sum(), 0.0)
        return _at_worst(weights * self.found, lost)

    def _draw(self, rng: np.random.Generator, sizes: Counts, chances: Rates, mean: float, places: Counts) -> "Drawn":
        drawn, chance = sizes[places], chances[places]
        if self.found < 1:  # what is found of a document is lost whole
            found = rng.binomial(drawn, self.found)
            return Drawn(drawn, np.where(rng.random(places.shape) < chance, found, 0), found)
        luck = rng.random(places.shape)
        lost = luck < (1 + self.gains) * chance
        gained = ~lost & (luck < (1 + 2 * self.gains) * chance)
        sums = np.where(lost, drawn, 0) - np.where(gained, drawn, 0)
        if self.on == "all" and self.whole < 1:
            left = mean * (1 - self.whole) / (1 - (1 + 2 * self.gains) * mean * self.whole)
            singly = rng.binomial(drawn, (1 + self.gains) * left)
            if self.gains:
                singly -= rng.binomial(drawn - singly, self.gains * left / (1 - (1 + self.gains) * left))
            sums = np.where(lost | gained, sums, singly)
        return Drawn(drawn, sums)


@dataclass(frozen=True)
class Drawn:
    """sizes: queries of each document, sums: queries lost less queries gained, found: that can be lost, all if None.

    All are (trials, d).
    """

    sizes: Counts
    sums: Counts
    found: Counts | None = None


def changed(rng: np.random.Generator, sizes: Counts, share: float, trials: int, *, whole: bool) -> Drawn:
    """A share of the answers is lost and as many are gained, query by query or whole documents at a time."""
    drawn = np.broadcast_to(sizes, (trials, len(sizes)))
    each = np.ones_like(drawn) if whole else drawn
    lost = rng.binomial(each, share)
    gained = rng.binomial(each - lost, share / (1 - share))
    return Drawn(drawn, (lost - gained) * (drawn if whole else 1))


def _at_worst(weights: Rates, lost: float) -> Rates:
    """1 − κ / n, at least 0, with the κ that gives the loss: where the expectation of the largest stake's bet peaks."""
    low, high = 0.0, float(weights.max())
    for _ in range(100):
        middle = (low + high) / 2
        enough = weights @ np.maximum(0.0, 1 - middle / weights) > lost
        low, high = (middle, high) if enough else (low, middle)
    return np.maximum(0.0, 1 - low / weights)


FALLS = (
    Fall("whole documents", 1.0),
    Fall("half by document", 0.5),
    Fall("a tenth by document", 0.1),
    Fall("single queries", 0.0),
)
WITH_GAINS = (
    Fall("whole documents, gains", 1.0, gains=1.0),
    Fall("half by document, gains", 0.5, gains=1.0),
    Fall("single queries, gains", 0.0, gains=1.0),
)
LARGEST = Fall("largest documents only", 1.0, on="the largest")
AT_WORST = Fall("largest documents, at worst", 1.0, on="at worst")
FOUND = Fall("half of the answers found, at worst", 1.0, on="at worst", found=0.5)
