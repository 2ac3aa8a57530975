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
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.risk.certify import counting_enough
from taugate.calibration.settings.rules import PolicyChoice
from taugate.calibration.threshold.calibration_queries import CalibrationQueries
from taugate.calibration.threshold.decide import decide_policy
from taugate.calibration.threshold.policy_choice import with_enough_evidence
from taugate.retrieval.policy.policy import decision_scores, keep

HEADING = "Realised loss of certified cuts"
SETS = (
    "squad_v2_dev",
    "squadshifts_new_wiki",
    "covidqa_chunks",
    "scifact/train",
    "mixed_large",
    "pubmedqa_labelled",
)
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
class Done:
    """Outcomes of the splits, by document and by query, and whether either loss exceeds δ on documents drawn anew."""

    now: list[Realised] = field(default_factory=list)
    before: list[Realised] = field(default_factory=list)
    anew: list[tuple[bool, bool]] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """One set, policy and δ over all splits.

    Attributes:
        now: Outcomes of the certificate by document.
        before: Outcomes of that by query, empty if there is none.
        anew: Shares above δ, now and before.
    """

    name: str
    policy: str
    delta: float
    now: Sequence[Realised]
    before: Sequence[Realised]
    anew: tuple[float, float] | None = None

    def above(self, which: str, *, before: bool = False) -> float:
        """Return the share of splits in which the loss is above δ."""
        of = self.before if before else self.now
        return float(np.mean([getattr(each, which) > self.delta + 1e-12 for each in of])) if of else 0.0

    def cells(self) -> list[str]:
        """Format a cell of the table: now, and before in brackets."""
        pairs = [(self.above(which), self.above(which, before=True)) for which in ("unseen", "all")]
        pairs += [self.anew] if self.anew else []
        pairs += [(self.mean(which), self.mean(which, before=True)) for which in ("certified", "kept")]
        cells = [share(now) + (f" ({share(before)})" if self.before else "") for now, before in pairs]
        return [self.name, self.policy, share(self.delta, 2), *cells]

    def mean(self, which: str, *, before: bool = False) -> float:
        """Over the splits."""
        of = self.before if before else self.now
        return float(np.mean([getattr(each, which) for each in of])) if of else 0.0


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
        "Share of splits whose loss over all queries is above δ",
        ("set, policy and δ, lowest to highest, percent", "above δ"),
        {
            words: ranked([row.above("all", before=before) for row in (*fixed, *fitted) if row.before])
            for words, before in (("by document", False), ("by query", True))
        },
        ALPHA,
    )
    header = ["set", "policy", "δ", "above δ, unseen", "above δ, all", "above δ, drawn anew", "certified", "kept"]
    return f"""\
A certified cut promises, with 95 % confidence, a loss of accuracy of at most δ. Here whole documents calibrate until they hold 70 % of the
queries, as with the default `--holdout`; the queries of the other documents are unseen. K = {K}. A split in which nothing is certified
keeps everything and loses nothing. In brackets is a certificate that counts single queries as independent, on the same splits.

* **Unseen**: the share of splits with a loss above δ on the unseen queries. These are a sample too: a cut whose true loss is exactly δ
  exceeds it about half of the time.
* **All**: the same over all queries of the set, seven in ten of which calibrate. This is closer to what the certificate promises.
* **Drawn anew**: the same if the set is the whole world. Documents are drawn from it with replacement until they have 70 % as many
  queries, and the loss over the set is the truth.

### Policies without a model: {experiment.splits:,} splits

{_targets(fixed, experiment.splits)}

{_price(fixed)}

{table(header, [row.cells() for row in fixed])}

### Policies with a model: {splits:,} splits

The model is fitted in each split, and only queries that it has not seen certify it. `auto` is counted by document alone.

{_targets(fitted, splits)}

{table([each for each in header if "anew" not in each], [row.cells() for row in fitted])}

{image}
"""


def _fixed(name: str, searched: SearchedSplit, splits: int, seed: int) -> list[Row]:
    """Policies that are fixed beforehand: all calibration queries certify."""
    units, single, everything = searched.units, _one_by_one(len(searched.queries)), np.arange(len(searched.queries))
    members = np.split(np.argsort(units.clusters, kind="stable"), np.cumsum(units.sizes())[:-1])
    scores = searched.judged.top.scores
    stairs = {kind: Staircase.of(searched, decision_scores(kind, scores, None), max(LOSSES)) for kind in _FIXED}
    done = {(kind, loss): Done() for kind in _FIXED for loss in LOSSES}
    for number in range(splits):
        calibration, others = unseen(np.random.default_rng([seed, number]), units)
        drawn, labels = _anew(np.random.default_rng([seed, number, 1]), members, len(units))
        for kind, stair in stairs.items():
            taus = [_taus(stair, calibration, each, calibration) for each in (units, single)]
            anew = [_taus(stair, drawn, each, np.arange(len(drawn))) for each in (labels, _one_by_one(len(drawn)))]
            for at, loss in enumerate(LOSSES):
                each = done[kind, loss]
                each.now.append(_realised(stair, taus[0][at], others))
                each.before.append(_realised(stair, taus[1][at], others))
                by_document, by_query = (stair.lost(everything, taus[at]) > loss + 1e-12 for taus in anew)
                each.anew.append((by_document, by_query))
            if number < _CHECKED:
                _check(searched, kind, calibration, taus[0])
    return [
        Row(name, kind, loss, each.now, each.before, tuple(np.mean(each.anew, axis=0).tolist()))
        for (kind, loss), each in done.items()
    ]


def _fitted(name: str, searched: SearchedSplit, splits: int, seed: int) -> list[Row]:
    """Policies that fit a model, by the product's own decision."""
    done = {(policy, loss): Done() for policy in _FITTED for loss in LOSSES}
    single = _one_by_one(len(searched.queries))
    for number in range(splits):
        rng = np.random.default_rng([seed, number])
        calibration, others = unseen(rng, searched.units)
        evidence = gather(searched, calibration, rng, number)
        kinds = evidence.scored.kinds
        stairs = {kind: Staircase.of(searched, evidence.scored.decisions(kind), max(LOSSES)) for kind in kinds}
        if evidence.roles is None:
            raise AssertionError("a calibration with a model splits its queries")
        rest = evidence.roles.not_fitting
        before = _taus(stairs["probability"], rest, single, rest)
        for (policy, loss), each in done.items():
            rule = certified(policy, "high-probability", loss)
            found = decide_policy(rule, with_enough_evidence(rule, evidence))
            each.now.append(_realised(stairs["relative" if found.kind == "none" else found.kind], found.tau, others))
            if policy == "probability":
                each.before.append(_realised(stairs["probability"], before[LOSSES.index(loss)], others))
    return [Row(name, policy, loss, each.now, each.before) for (policy, loss), each in done.items()]


def _taus(stair: Staircase, rows: Positions, units: SamplingUnits, certifying: Positions) -> list[float | None]:
    """τ for each δ by the queries at `rows`, which are those of `units` at `certifying`."""
    rules = [certified("relative", "high-probability", loss) for loss in LOSSES]
    counted = [counting_enough(units, certifying, rule).take(certifying) for rule in rules]
    return [stair.tau(rows, each, loss) for each, loss in zip(counted, LOSSES, strict=True)]


def _one_by_one(queries: int) -> SamplingUnits:
    return SamplingUnits.from_clusters(np.arange(queries))


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


def _price(rows: Sequence[Row]) -> str:
    """Describe which cuts are lost if documents are the unit of evidence."""
    dear = [row for row in rows if row.mean("kept") != row.mean("kept", before=True)]
    if not dear:
        return ""
    kept, before = (float(np.mean([row.mean("kept", before=each) for row in dear])) for each in (False, True))
    never = sum(row.mean("certified") < 0.5 for row in dear)
    return (
        f"What it costs: in the {len(dear)} rows with documents as the unit {share(kept, 2)} of the results are kept on average; {share(before, 2)} were\n"
        f"kept by query, and in {never} of them fewer than half of the splits certify anything: the largest documents have so many of the queries\n"
        "there that a loss of theirs alone could be above δ."
    )


def _targets(rows: Sequence[Row], splits: int) -> str:
    """The largest shares, and whether they are what was wanted."""
    allowed = ALPHA + 2 * float(np.sqrt(ALPHA * (1 - ALPHA) / splits))
    figures = {
        "unseen": ([row.above("unseen") for row in rows], [row.above("unseen", before=True) for row in rows]),
        "all": ([row.above("all") for row in rows], [row.above("all", before=True) for row in rows]),
    }
    if all(row.anew for row in rows):
        figures["drawn anew"] = tuple(zip(*(row.anew for row in rows), strict=True))
    lined = [
        [
            f"above δ, {name}",
            f"≤ {share(allowed)}",
            share(max(now)),
            verdict(reached=max(now) <= allowed),
            share(max(before)),
        ]
        for name, (now, before) in figures.items()
        if now
    ]
    return table(["largest share", "wanted", "by document", "", "by query"], lined)
