"""What certified cuts lose: calibrated on whole documents, judged on those that nobody had seen."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from bench import Bench
from page import share, table, verdict
from plot import lines, ranked
from searched import Searched
from trials import LOSSES, certified, gather, unseen
from verdicts import ALPHA, passed

from calibration.decide import decide
from calibration.evidence import Evidence
from calibration.query_set.clusters import Units
from calibration.risk.certify import p_values
from calibration.risk.steps import LossSteps
from retrieval.policy import PolicyKind, decision_scores, keep
from retrieval.similarity import Float32

HEADING = "Realised loss of certified cuts"
SETS = ("squad_v2_dev", "squadshifts_new_wiki", "covidqa_chunks", "scifact/train", "mixed_large")
K = 5
_FIXED: tuple[PolicyKind, ...] = ("similarity", "relative")
_FITTED = ("probability", "auto")
_SPLITS_FITTED = 100
_CHECKED = 5  # splits on which the product's decision is asked for, too


@dataclass(frozen=True)
class Realised:
    """Of one cut: share of the unseen queries and of all queries lost, share of the unseen queries' results kept."""

    certified: bool
    unseen: float
    all: float
    kept: float


@dataclass(frozen=True)
class Row:
    """One set, policy and δ over all splits; `anew`: with calibration documents drawn with replacement, None without."""

    name: str
    policy: str
    delta: float
    now: Sequence[Realised]
    before: Sequence[Realised]
    anew: tuple[float, float] | None = None

    def above(self, which: str, *, before: bool = False) -> float:
        """Share of splits in which the loss is above δ."""
        return float(
            np.mean([getattr(each, which) > self.delta + 1e-12 for each in (self.before if before else self.now)])
        )

    def cells(self) -> list[str]:
        """Of the table: now, and before in brackets."""
        pairs = [[self.above(which), self.above(which, before=True)] for which in ("unseen", "all")] + (
            [list(self.anew)] if self.anew else []
        )
        pairs += [
            [float(np.mean([getattr(one, each) for one in some])) for some in (self.now, self.before)]
            for each in ("certified", "kept")
        ]
        return [
            self.name,
            self.policy,
            share(self.delta, 2),
            *(f"{share(now)} ({share(before)})" for now, before in pairs),
        ]


def section(bench: Bench) -> str:
    """The section of the page."""
    fixed, fitted = [], []
    splits = bench.part(_SPLITS_FITTED)
    for name in bench.wanted(SETS):
        searched = bench.searched(name, K)
        fixed += _fixed(searched, bench.splits, bench.seed)
        fitted += _fitted(searched, splits, bench.seed)
        print(f"realised: {name}", flush=True)
    image = lines(
        "realised",
        "Share of splits whose loss over all queries is above δ",
        ("set, policy and δ, lowest to highest, percent", "above δ"),
        {
            words: ranked([row.above("all", before=before) for row in (*fixed, *fitted)])
            for words, before in (("now", False), ("before", True))
        },
        ALPHA,
    )
    header = ["set", "policy", "δ", "above δ, unseen", "above δ, all", "above δ, drawn anew", "certified", "kept"]
    return f"""\
Whole documents calibrate until they have 70 % of the queries, as with the default `--holdout`; the queries of the others are unseen. K = {K},
confidence 95 %, accuracy. A split in which nothing is certified keeps everything and loses nothing. In brackets is the certificate
of the release before on the same splits: exact, but of queries one by one.

* **Unseen**: the loss on the unseen queries is above δ. These are a sample, too: a cut whose true loss is exactly δ does this
  about half of the time.
* **All**: the loss over all queries of the set is above δ; nearer to what the certificate speaks of. The calibration queries are
  seven in ten of them.
* **Drawn anew**: the set is the whole world. Documents are drawn from it with replacement until they have 70 % as many queries, and
  the loss over the set is the truth.

### Policies without a model: {bench.splits:,} splits

{_targets(fixed, bench.splits)}

{table(header, [row.cells() for row in fixed])}

### Policies with a model: {splits:,} splits

The model is fitted in each split, and only queries that it has not seen certify.

{_targets(fitted, splits)}

{table([each for each in header if "anew" not in each], [row.cells() for row in fitted])}

{image}
"""


def _fixed(searched: Searched, splits: int, seed: int) -> Iterable[Row]:
    """Policies that are fixed beforehand: all calibration queries certify."""
    units, single = searched.units, _one_by_one(len(searched.queries))
    for kind in _FIXED:
        decisions = decision_scores(kind, searched.judged.top.scores, None)
        world = LossSteps.of_accuracy(searched.judged, decisions)
        done: dict[float, tuple[list[Realised], list[Realised], list[tuple[float, float]]]] = {
            each: ([], [], []) for each in LOSSES
        }
        for number in range(splits):
            calibration, others = unseen(np.random.default_rng([seed, number]), units)
            drawn, labels = _anew(np.random.default_rng([seed, number, 1]), units)
            part, left = decisions[others], LossSteps.of_accuracy(searched.judged.take(others), decisions[others])
            stairs = [_steps(searched, decisions, calibration, each.take(calibration)) for each in (units, single)]
            anew = [_steps(searched, decisions, drawn, each) for each in (labels, _one_by_one(len(drawn)))]
            for loss, (now, before, truths) in done.items():
                for steps, realised in zip(stairs, (now, before), strict=True):
                    realised.append(_realised(_highest(steps, loss), left, world, part))
                truths.append(tuple(_lost(world, _highest(steps, loss)) > loss + 1e-12 for steps in anew))
            if number < _CHECKED:
                _check(searched, kind, calibration, {loss: _highest(stairs[0], loss) for loss in LOSSES})
        for loss, (now, before, truths) in done.items():
            yield Row(searched.name, kind, loss, now, before, tuple(np.mean(truths, axis=0).tolist()))


def _fitted(searched: Searched, splits: int, seed: int) -> Iterable[Row]:
    """Policies that fit a model, by the product's own decision."""
    done: dict[tuple[str, float], tuple[list[Realised], list[Realised]]] = {
        (policy, loss): ([], []) for policy in _FITTED for loss in LOSSES
    }
    single = _one_by_one(len(searched.queries))
    for number in range(splits):
        rng = np.random.default_rng([seed, number])
        calibration, others = unseen(rng, searched.units)
        evidence = gather(searched, calibration, rng, number)
        for (policy, loss), both in done.items():
            for each, realised in zip((evidence, replace(evidence, units=single)), both, strict=True):
                found = decide(certified(policy, "high-probability", loss), each)
                decisions = each.scored.decisions(found.kind)
                world = LossSteps.of_accuracy(searched.judged, decisions)
                left = LossSteps.of_accuracy(searched.judged.take(others), decisions[others])
                realised.append(_realised(found.tau, left, world, decisions[others]))
    return [Row(searched.name, policy, loss, *both) for (policy, loss), both in done.items()]


def _one_by_one(queries: int) -> Units:
    return Units.of(np.arange(queries))


def _steps(searched: Searched, decisions: Float32, rows: np.ndarray, units: Units) -> LossSteps:
    return LossSteps.of_accuracy(searched.judged.take(rows), decisions[rows], units)


def _anew(rng: np.random.Generator, units: Units) -> tuple[np.ndarray, Units]:
    """Queries of documents drawn with replacement; a document that is drawn twice is two."""
    members = np.split(np.argsort(units.labels, kind="stable"), np.cumsum(units.sizes())[:-1])
    drawn = [members[at] for at in rng.integers(0, len(members), len(members)).tolist()]
    sizes = np.array([len(each) for each in drawn])
    enough = int(np.searchsorted(np.cumsum(sizes), 0.7 * len(units))) + 1
    return np.concatenate(drawn[:enough]), Units.of(np.repeat(np.arange(len(sizes[:enough])), sizes[:enough]))


def _highest(steps: LossSteps, delta: float) -> float | None:
    """τ as `certify` finds it, without the rest of the certificate."""
    passes = passed(p_values(steps, delta))[steps.places(steps.candidates)]
    first_failure = len(passes) if passes.all() else int(passes.argmin())
    return None if first_failure == 0 else float(steps.candidates[first_failure - 1])


def _lost(steps: LossSteps, tau: float | None) -> float:
    return 0.0 if tau is None else float(steps.at(np.array([tau], np.float32))[0]) / steps.queries


def _realised(tau: float | None, left: LossSteps, world: LossSteps, decisions: Float32) -> Realised:
    kept = float(keep(decisions, None if tau is None else np.float32(tau)).mean())
    return Realised(tau is not None, _lost(left, tau), _lost(world, tau), kept)


def _check(searched: Searched, kind: PolicyKind, calibration: np.ndarray, taus: dict[float, float | None]) -> None:
    """Raises AssertionError where the product decides otherwise."""
    evidence = Evidence(searched.scored(), calibration, np.zeros((1, 1), np.int64), None, None, searched.units, 0)
    if taus != {loss: decide(certified(kind, "high-probability", loss), evidence).tau for loss in taus}:
        raise AssertionError(f"{searched.name}: the benchmark does not measure the product")


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
    return table(["largest share", "wanted", "now", "", "before"], lined)
