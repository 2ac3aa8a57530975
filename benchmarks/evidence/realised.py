"""Measure what certified cuts lose on documents that had no say in them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from benchmarks.calibration.trials import HOLDOUT, LOSSES, Positions, certified, gather, unseen
from benchmarks.evidence.plot import lines, ranked
from benchmarks.evidence.staircase import Staircase
from benchmarks.evidence.verdicts import ALPHA
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, verdict
from benchmarks.searched import SearchedSplit
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.certify import counting_enough
from taugate.evidence.rules import PolicyChoice
from taugate.evidence.threshold.decide import decide_policy
from taugate.evidence.threshold.policy_choice import CalibrationQueries, with_enough_evidence
from taugate.policy.policy import POLICIES, keep

HEADING = "Realised loss of certified cuts"
SETS = ("squad_v2_dev", "squadshifts_new_wiki", "covidqa_chunks", "scifact/train", "mixed_large", "pubmedqa_labelled")
K = 5
_FIXED: tuple[Literal["similarity", "relative"], ...] = ("similarity", "relative")
_FITTED: tuple[PolicyChoice, ...] = ("probability", "auto")
_SPLITS_FITTED = 300
_CHECKED = 5  # splits on which the product's decision is asked for, too


@dataclass(frozen=True)
class Realised:
    """The outcome of one cut: share of the unseen and of all queries lost, and of the unseen queries' results kept."""

    certified: bool
    unseen: float
    all: float
    kept: float


@dataclass(frozen=True)
class Row:
    """Outcomes of a policy over all splits.

    Attributes:
        splits: Outcomes of the splits.
        anew: Whether the loss is above δ if documents are drawn anew, in each split; empty if they are not.
    """

    name: str
    policy: str
    delta: float
    splits: list[Realised] = field(default_factory=list)
    anew: list[bool] = field(default_factory=list)

    def above(self, which: str) -> float:
        """Return the share of splits in which the loss is above δ."""
        if which == "drawn anew":
            return float(np.mean(self.anew))
        return float(np.mean([getattr(each, which) > self.delta + 1e-12 for each in self.splits]))

    def cells(self) -> list[str]:
        """Format a row of the table."""
        figures = [self.above(which) for which in ("unseen", "all", *(["drawn anew"] if self.anew else []))]
        figures += [float(np.mean([getattr(each, which) for each in self.splits])) for which in ("certified", "kept")]
        return [self.name, self.policy, share(self.delta, 2), *map(share, figures)]


def section(experiment: Experiment) -> str:
    """Calibrate on whole documents, and judge each cut on the others."""
    fixed, fitted = [], []
    splits = experiment.part(_SPLITS_FITTED)
    for name in experiment.wanted(SETS):
        searched = experiment.searched(name, K)
        fixed += _fixed(name, searched, experiment.splits, experiment.seed)
        fitted += _fitted(name, searched, splits, experiment.seed)
        print(f"realised: {name}", flush=True)
    image = lines(
        "realised",
        "Share of splits whose loss is above δ",
        ("set, policy and δ, lowest to highest, percent", "above δ"),
        {
            "all queries": ranked([row.above("all") for row in (*fixed, *fitted)]),
            "drawn anew": ranked([row.above("drawn anew") for row in fixed]),
        },
        ALPHA,
    )
    header = ["set", "policy", "δ", "above δ, unseen", "above δ, all", "above δ, drawn anew", "certified", "kept"]
    return f"""\
A certified cut promises, with 95 % confidence, a loss of accuracy of at most δ. Here whole documents calibrate until they hold 70 % of the
queries, as with the default `--holdout`; the queries of the other documents are unseen. K = {K}. A split in which nothing is certified
keeps everything and loses nothing. A loss counts every query, although a certificate counts a document for a limited number.

* **Unseen**: the share of splits with a loss above δ on the unseen queries. These are a sample too: a cut whose true loss is exactly δ
  exceeds it about half of the time.
* **All**: the same over all queries of the set, seven in ten of which calibrate. This is closer to what the certificate promises.
* **Drawn anew**: the same if the set is the whole world. Documents are drawn from it with replacement until they have 70 % as many
  queries, and the loss over the set is the truth.

### Policies without a model: {experiment.splits:,} splits

{_targets(fixed, experiment.splits, ("unseen", "all", "drawn anew"))}

{table(header, [row.cells() for row in fixed])}

### Policies with a model: {splits:,} splits

The model is fitted in each split, and only queries that it has not seen certify it.

{_targets(fitted, splits, ("unseen", "all"))}

{table([each for each in header if "anew" not in each], [row.cells() for row in fitted])}

{image}
"""


def _fixed(name: str, searched: SearchedSplit, splits: int, seed: int) -> list[Row]:
    """Policies that are fixed beforehand: all calibration queries certify."""
    units, everything = searched.units, np.arange(len(searched.queries))
    members = np.split(np.argsort(units.clusters, kind="stable"), np.cumsum(units.sizes())[:-1])
    scores = searched.judged.top.scores
    stairs = {kind: Staircase.of(searched, POLICIES[kind].decide(scores, None), max(LOSSES)) for kind in _FIXED}
    rows = {kind: [Row(name, kind, loss) for loss in LOSSES] for kind in _FIXED}
    for number in range(splits):
        calibration, others = unseen(np.random.default_rng([seed, number]), units)
        drawn, labels = _anew(np.random.default_rng([seed, number, 1]), members, len(units))
        counted = _counted(units, calibration)
        counted_anew = _counted(labels, np.arange(len(drawn)))
        for kind, stair in stairs.items():
            taus = [stair.tau(calibration, each, loss) for each, loss in zip(counted, LOSSES, strict=True)]
            for place, row in enumerate(rows[kind]):
                row.splits.append(_realised(stair, taus[place], others))
                tau = stair.tau(drawn, counted_anew[place], row.delta)
                row.anew.append(stair.lost(everything, tau) > row.delta + 1e-12)
            if number < _CHECKED:
                _check(searched, kind, calibration, taus)
    return [row for of_kind in rows.values() for row in of_kind]


def _fitted(name: str, searched: SearchedSplit, splits: int, seed: int) -> list[Row]:
    """Policies that fit a model, by the product's own decision."""
    rows = [Row(name, policy, loss) for policy in _FITTED for loss in LOSSES]
    rules = [certified(policy, "high-probability", loss) for policy in _FITTED for loss in LOSSES]
    for number in range(splits):
        rng = np.random.default_rng([seed, number])
        calibration, others = unseen(rng, searched.units)
        evidence = gather(searched, calibration, rng, number)
        kinds = evidence.scored.kinds
        stairs = {kind: Staircase.of(searched, evidence.scored.decisions(kind), max(LOSSES)) for kind in kinds}
        for row, rule in zip(rows, rules, strict=True):
            found = decide_policy(rule, with_enough_evidence(rule, evidence))
            row.splits.append(_realised(stairs["relative" if found.kind == "none" else found.kind], found.tau, others))
    return rows


def _counted(units: SamplingUnits, certifying: Positions) -> list[SamplingUnits]:
    """Certifying queries, counted as the product counts them for each δ."""
    rules = [certified("relative", "high-probability", loss) for loss in LOSSES]
    return [counting_enough(units, certifying, rule).take(certifying) for rule in rules]


def _anew(rng: np.random.Generator, members: list[Positions], queries: int) -> tuple[Positions, SamplingUnits]:
    """Draw documents with replacement, and return their queries; a document drawn twice counts as two."""
    drawn = [members[at] for at in rng.integers(0, len(members), len(members)).tolist()]
    sizes = np.array([len(each) for each in drawn])
    enough = int(np.searchsorted(np.cumsum(sizes), (1 - HOLDOUT) * queries)) + 1
    labels = SamplingUnits.from_clusters(np.repeat(np.arange(len(sizes[:enough])), sizes[:enough]))
    return np.concatenate(drawn[:enough]), labels.capped(None)


def _realised(stair: Staircase, tau: float | None, others: Positions) -> Realised:
    kept = float(keep(stair.decisions[others], None if tau is None else np.float32(tau)).mean())
    return Realised(tau is not None, stair.lost(others, tau), stair.lost(np.arange(len(stair.best)), tau), kept)


def _check(
    searched: SearchedSplit, kind: Literal["similarity", "relative"], calibration: Positions, taus: list[float | None]
) -> None:
    """Check the decision against that of the product; raise AssertionError if they differ."""
    evidence = CalibrationQueries(
        searched.scored(), calibration, np.zeros((1, 1), np.int64), None, None, searched.units, 0
    )
    rules = [certified(kind, "high-probability", loss) for loss in LOSSES]
    if taus != [decide_policy(rule, with_enough_evidence(rule, evidence)).tau for rule in rules]:
        raise AssertionError(f"{searched.name}: the benchmark does not measure the product")


def _targets(rows: Sequence[Row], splits: int, names: Sequence[str]) -> str:
    """The largest shares, and whether they are what was wanted."""
    allowed = ALPHA + 2 * float(np.sqrt(ALPHA * (1 - ALPHA) / splits))
    largest = {name: max(row.above(name) for row in rows) for name in names}
    cells = [
        [f"above δ, {name}", f"≤ {share(allowed)}", share(above), verdict(reached=above <= allowed)]
        for name, above in largest.items()
    ]
    return table(["largest share", "wanted", "found", ""], cells)
