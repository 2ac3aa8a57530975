"""Measure what each rule keeps, loses and answers wrongly on one data set with one encoder."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibrated import IndexedSet
from benchmarks.guesses.rules import CERTIFIED, DEFAULT, GUESSES
from taugate.calibration.metrics.inputs import clusters
from taugate.calibration.settings import CalibrationSettings
from taugate.calibration.study.decide import decide
from taugate.calibration.threshold.shortage import evidence_bound
from taugate.data.judgements import TEST
from taugate.evidence.clusters import ClusterIds, cluster_bootstrap
from taugate.evidence.ranking import JudgedQueries
from taugate.evidence.rules import ThresholdRule
from taugate.release.evidence import Interval
from taugate.release.outcome_records import PolicyRecord

MAX_LOSS = 0.02
_BOOTSTRAPS = 1000


@dataclass(frozen=True)
class RuleOutcome:
    """Figures of one rule, each a mean over queries with its 95 % interval by document.

    Attributes:
        kept: Share of the top-K results passed on, for answerable queries.
        lost: Points of top-K accuracy lost, as a share of the answerable queries.
        wrong: Share of the answerable queries that get results, none of them relevant.
        unanswerable: Share of the unanswerable queries that get results, None if the set has none.
    """

    kept: Interval
    lost: Interval
    wrong: Interval
    unanswerable: Interval | None


@dataclass(frozen=True)
class SetOutcome:
    """A data set searched with one encoder, and the outcome of every rule on the queries that were held out.

    Attributes:
        name: Of the set, with its split after a slash unless that is test.
        encoder: Its name in the tables.
        accuracy: Share of the held-out queries with a relevant document in their top K.
        heldout: How many queries judge.
        unanswerable: How many queries judge.
        policy: The certified cut as its manifest would have it.
        nats: Evidence for a loss of at most 2 % that no test by document can exceed on the queries that calibrate.
        rules: By name, in the order of the tables.
    """

    name: str
    encoder: str
    accuracy: float
    heldout: int
    unanswerable: int
    policy: PolicyRecord
    nats: float
    rules: dict[str, RuleOutcome]

    @classmethod
    def measure(cls, data: Path, name: str, encoder: tuple[str, str], seed: int) -> Self:
        """Calibrate as `taugate calibrate --max-loss 0.02 --refuse off --lexical off` does, and measure on the held-out queries."""
        folder, _, split = name.partition("/")
        title, source = encoder
        settings = CalibrationSettings(seed=seed, rule=ThresholdRule.from_options(max_loss=[MAX_LOSS]))
        with tempfile.TemporaryDirectory() as spool:
            indexed = IndexedSet.read(data / folder, split or TEST, source, Path(spool))
            study, inputs = indexed.studied(settings)
            policy: PolicyRecord = decide(study, inputs).policy
            default, inputs = indexed.studied(CalibrationSettings(seed=seed, refuse="auto"))
            papers: PolicyRecord = decide(default, inputs).policy
        dataset = indexed.dataset
        labels = clusters(dataset.answerable + dataset.unanswerable)
        members = study.parts["heldout"].members
        answerable, kind = study.scored.take(members), policy.kind
        judges = Judges(answerable.judged, labels[members], labels[len(dataset.answerable) :], seed)
        similarities = answerable.judged.top.scores, study.scored.unanswerable.scores
        rules = {guess.name: judges.outcome(*map(guess.keeps, similarities)) for guess in GUESSES}
        certified = answerable.kept(kind, policy.threshold), answerable.unanswerable_kept(kind, policy.threshold)
        rules[CERTIFIED] = judges.outcome(*certified)
        held = default.parts["heldout"].members  # single queries, where a certificate holds out whole documents
        served, kind = default.scored.take(held), papers.kind
        two_gates = served.kept(kind, papers.threshold), served.unanswerable_kept(kind, papers.threshold)
        rules[DEFAULT] = replace(judges, judged=served.judged, labels=labels[held]).outcome(*two_gates)
        accuracy = float(answerable.judged.accuracy().mean())
        calibration = study.parts["calibration"].members
        nats = _nats(labels[calibration], study.scored.take(calibration).judged.accuracy(), policy)
        return cls(name, title, accuracy, len(members), len(dataset.unanswerable), policy, nats, rules)


def _nats(labels: ClusterIds, answers: NDArray[np.float64], policy: PolicyRecord) -> float:
    """Return the largest evidence of any test by document, with documents counted as in the certificate."""
    document = np.unique(labels, return_inverse=True)[1]
    sizes = np.bincount(document).astype(np.float64)
    counted = np.minimum(sizes, policy.certificates[0].count_at_most or np.inf)
    return evidence_bound(np.bincount(document, answers) * counted / sizes, float(counted.sum()), MAX_LOSS)


@dataclass(frozen=True)
class Judges:
    """The queries that judge every rule: q answerable ones that were held out, and all u unanswerable ones.

    Attributes:
        judged: Results of the answerable ones.
        labels: (q,) and unanswerable_labels: (u,) clusters of queries that share a document.
        seed: Of the intervals.
    """

    judged: JudgedQueries
    labels: ClusterIds
    unanswerable_labels: ClusterIds
    seed: int

    def outcome(self, kept: NDArray[np.bool_], unanswerable: NDArray[np.bool_]) -> RuleOutcome:
        """Measure a rule."""
        answered: NDArray[np.bool_] = np.any(unanswerable, axis=1)
        answered_wrongly = kept.any(axis=1) & (self.judged.accuracy(kept) == 0)
        return RuleOutcome(
            kept=self.interval(kept.mean(axis=1), self.labels),
            lost=self.interval(self.judged.lost("accuracy", kept), self.labels),
            wrong=self.interval(answered_wrongly.astype(np.float64), self.labels),
            unanswerable=self.interval(answered.astype(np.float64), self.unanswerable_labels)
            if len(answered)
            else None,
        )

    def interval(self, per_query: NDArray[np.float64], labels: ClusterIds) -> Interval:
        """Return the mean of a metric over queries with its 95 % interval by document."""
        numbered = np.unique(labels, return_inverse=True)[1]
        drawn = cluster_bootstrap(per_query, numbered, np.random.default_rng(self.seed), _BOOTSTRAPS)
        return Interval(mean=float(per_query.mean()), lower=drawn.lower, upper=drawn.upper)
