"""Measure `relevance` and certified cuts after the corpus and its users change and the release does not."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from benchmarks.calibration.trials import certified
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table
from benchmarks.searched import EncodedSplit, SearchedSplit
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.metrics.ranking import JudgedQueries, ScoredQueries
from taugate.calibration.metrics.reliability import LIKELY, ReliabilitySums, brier_skill, error_interval, reliability
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.model import recalibrate
from taugate.calibration.threshold.calibration_queries import CalibrationQueries
from taugate.calibration.threshold.decide import decide_policy
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.background import Background
from taugate.retrieval.policy.policy import keep
from taugate.retrieval.policy.relevance import Logistic, Recalibration, features
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.vectors.similarity import Float32

HEADING = "Relevance under shift"
SOURCE = "squad_v2_dev"
SETS = ("squadshifts_new_wiki", "squadshifts_reddit", "pubmedqa_labelled", "covidqa_chunks", "scifact/train", "cosqa")
_LOSS = 0.02
_SAID = 0.8  # the tenth of results that say .8 to .9
_Certified = Literal["similarity", "relative", "probability"]
_POLICIES: tuple[_Certified, ...] = ("similarity", "relative", "probability")
_LABELLED = 100  # queries of the new corpus that somebody labels


def section(experiment: Experiment) -> str:
    """Serve other data sets with the calibration of one, and measure both."""
    said, cuts, tried = [], [], []
    for k in (5, 20):
        release = SourceCalibration.of(experiment.searched(SOURCE, k), experiment.seed)
        for name in experiment.wanted([SOURCE, *SETS]):
            shifted = Shifted.of(release, experiment.encoded(name), k)
            judges = release.unseen if name == SOURCE else np.arange(len(shifted.judged))
            title = f"{name}, unseen" if name == SOURCE else name
            said.append([title, k, *shifted.said(release.model.log_odds(shifted.values), judges, experiment.seed)])
            cuts.append([title, k, *shifted.cuts(release, judges)])
            if name != SOURCE:
                tried.append((name, k, shifted.tried(release, experiment.seed)))
    policies = [f"{policy}: lost / kept" for policy in _POLICIES]
    ways = ["background of the new queries", "shares of classes by EM", f"{_LABELLED} labelled queries"]
    lower = [sum(each[way].mean < each[0].mean for *_, each in tried) for way in (1, 2, 3)]
    better = "; ".join(f"{way}: {count}" for way, count in zip(ways, lower, strict=True))
    rows = [[name, k, *map(_interval, each)] for name, k, each in tried]
    return f"""\
What if the corpus and its users change, and nobody calibrates again? 70 % of {SOURCE} calibrate; then other data sets are served. The
document statistics are those of the new corpus. The model of relevance, its correction and the threshold τ stay. All queries of the
new set judge; of {SOURCE} only those held out. Intervals are 95 %, by document.

### What it says

"Said .8 to .9" is the share of relevant results among those with a `relevance` of .8 to .9.

{table(["set", "K", "Brier skill", "ECE", "ECE of p ≥ .2", "said .8 to .9"], said)}

### What a cut loses that was certified to lose at most {share(_LOSS, 2)}

{table(["set", "K", *policies], cuts)}

### What was tried against it

The table has the calibration error (ECE) of results with p ≥ .2, on half of the new documents. The corrections learn from the other
half only.

- *Background of the new queries*: the model's numbers about a document compare it with the new queries instead of the old ones.
- *Shares of classes by EM*: the method of Saerens, Latinne and Decaestecker (Neural Computation 14, 2002) estimates the new share
  of relevant results from the model's own probabilities.
- The last column fits the correction again on {_LABELLED} labelled queries of the new corpus. The other two need no labels.

Lower than without a correction, of {len(tried)} rows: {better}.

{table(["set", "K", "as it is", *ways], rows)}
"""


@dataclass(frozen=True)
class SourceCalibration:
    """The result of a calibration on the source data set.

    Attributes:
        asked: (f, d) vectors of the queries that fit.
        unseen: Positions of those that were held out.
        base: Share of results that are relevant, as the model says.
        taus: Of a certified cut of each policy.
    """

    model: Logistic
    asked: Float32
    unseen: np.ndarray
    base: float
    taus: dict[_Certified, float | None]

    @classmethod
    def of(cls, searched: SearchedSplit, seed: int) -> "SourceCalibration":
        """Calibrated on whole documents with 70 % of the queries."""
        order = np.random.default_rng(seed).permutation(int(searched.units.labels.max()) + 1)
        held = np.isin(searched.units.labels, order[: round(0.3 * len(order))])
        calibration = np.flatnonzero(~held)
        parts = QueryRoles.draw(calibration, searched.units, seed)
        estimated = searched.estimate(parts)
        if estimated is None:
            raise AssertionError(f"{SOURCE} has relevant results")
        rows = np.zeros((1, 1), dtype=np.int64)  # these rules look at no bootstrap
        evidence = CalibrationQueries(
            searched.scored(estimated), calibration, rows, parts, estimated, searched.units, seed
        )
        rules = {policy: certified(policy, "high-probability", _LOSS) for policy in _POLICIES}
        taus = {policy: decide_policy(rule, evidence).tau for policy, rule in rules.items()}
        base = float(estimated.answerable[calibration].mean())
        return cls(estimated.relevance.model, searched.vectors[parts.fit], np.flatnonzero(held), base, taus)


class Shifted:
    """A data set as seen by a release that was calibrated on another."""

    def __init__(self, encoded: EncodedSplit, judged: JudgedQueries, asked: Float32) -> None:
        """asked: queries that say how a document scores against queries."""
        self.encoded, self.judged = encoded, judged
        self.units = SamplingUnits.from_labels(clusters(encoded.queries))
        self.relevant = judged.grades >= 1
        self.values = self.described(asked)

    @classmethod
    def of(cls, release: SourceCalibration, encoded: EncodedSplit, k: int) -> "Shifted":
        """Search the data set at depth K."""
        index = FlatIndex.build(encoded.vectors.documents)
        return cls(encoded, JudgedQueries.judge(encoded.queries, encoded.vectors.answerable, index, k), release.asked)

    def described(self, asked: Float32) -> np.ndarray:
        """Features of every result, (n, K, F)."""
        vectors, top = self.encoded.vectors, self.judged.top
        background = Background.of(vectors.documents, asked, self.encoded.lengths)
        of_queries = background.of_queries(vectors.answerable)
        return features(top.scores, of_queries, background.documents[top.positions], top.scores.shape[1])

    def said(self, odds: np.ndarray, judges: np.ndarray, seed: int) -> list[str]:
        """Brier skill, both calibration errors and what comes true of .8 to .9."""
        sums = self._sums(odds, judges)
        drawn = sums.drawn(np.random.default_rng(seed))
        cells = [brier_skill(sums, drawn), error_interval(sums, drawn), error_interval(sums, drawn, LIKELY)]
        tenth = next((each for each in reliability(sums) if round(each.lower, 1) == _SAID), None)
        known = "" if tenth is None or tenth.interval is None else f"{_interval(tenth.interval)} of {tenth.results:,}"
        return [*map(_interval, cells), known]

    def cuts(self, release: SourceCalibration, judges: np.ndarray) -> list[str]:
        """Format the share of queries lost and of results kept of each policy."""
        relevance = release.model.probability(self.values).astype(np.float32)
        nothing = TopK(self.judged.top.scores[:0], self.judged.top.positions[:0])
        scored = ScoredQueries(self.judged, nothing, relevance, relevance[:0]).take(judges)
        cells = []
        for policy, tau in release.taus.items():
            kept = keep(scored.decisions(policy), None if tau is None else np.float32(tau))
            cells.append(
                f"{share(float(scored.judged.lost('accuracy', kept).mean()))} / {share(float(kept.mean()), 2)}"
            )
        return cells

    def tried(self, release: SourceCalibration, seed: int) -> list[Interval]:
        """ECE of p ≥ .2 on half of the documents, as it is and after what the other half teaches."""
        order = np.random.default_rng(seed).permutation(int(self.units.labels.max()) + 1)
        teaching = np.isin(self.units.labels, order[: len(order) // 2])
        learnt, judges = np.flatnonzero(teaching), np.flatnonzero(~teaching)
        odds = release.model.log_odds(self.values)
        own = release.model.log_odds(self.described(self.encoded.vectors.answerable[learnt]))
        few = np.random.default_rng([seed, 1]).permutation(learnt)[:_LABELLED]
        plain = replace(release.model, recalibration=Recalibration())
        fitted = recalibrate(plain, self.values[few], self.relevant[few]).log_odds(self.values)
        shares = odds + _shift_of_classes(odds[learnt], release.base)
        errors = []
        for each in (odds, own, shares, fitted):
            sums = self._sums(each, judges)
            errors.append(error_interval(sums, sums.drawn(np.random.default_rng(seed)), LIKELY))
        return errors

    def _sums(self, odds: np.ndarray, judges: np.ndarray) -> ReliabilitySums:
        relevance = (1 / (1 + np.exp(-odds[judges]))).astype(np.float32)
        return ReliabilitySums.by_cluster(relevance, self.relevant[judges], self.units.labels[judges])


def _shift_of_classes(odds: np.ndarray, base: float) -> float:
    """Estimate the shift of the log-odds of new results.

    EM of Saerens et al., eq. 2.9: the new share is the mean probability under it, again and again.

    Args:
        base: Share of the old ones that are relevant.
    """
    shift = 0.0
    for _ in range(1000):
        new = float((1 / (1 + np.exp(-odds - shift))).mean())
        shift = float(np.log(new / (1 - new)) - np.log(base / (1 - base)))
    return shift


def _interval(value: Interval) -> str:
    return f"{share(value.mean)} ({share(value.lower)}–{share(value.upper)})"
