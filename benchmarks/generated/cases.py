"""One data set with one encoder: calibrated on cropped queries, and judged by the queries that people asked."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibrated import IndexedSet
from benchmarks.generated.sets import PublicSet
from benchmarks.guesses.outcomes import Judges
from taugate.calibration.metrics.ranking import JudgedQueries, ScoredQueries
from taugate.calibration.settings.rules import ThresholdRule
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.study import Findings
from taugate.ingestion.dataset.judgements import GENERATED, HUMAN
from taugate.ingestion.queries.generate import MAX_QUERIES, generate_crops
from taugate.retrieval.policy.policy import PolicyKind
from taugate.retrieval.release.evidence import Interval

MAX_LOSS = 0.05


@dataclass(frozen=True)
class Effect:
    """The effect of a threshold on a group of queries, as means with 95 % intervals by document.

    Attributes:
        lost: Share of the queries that have an answer in their top K, and none after the cut.
        kept: Share of the results.
    """

    lost: Interval
    kept: Interval


@dataclass(frozen=True)
class Cut:
    """A threshold with its effect on human queries that had no say in it.

    Attributes:
        kind: Of the policy.
        tau: None where nothing can be certified, and all results are kept.
        human: The effect.
    """

    kind: PolicyKind
    tau: float | None
    human: Effect


@dataclass(frozen=True)
class CroppedCut(Cut):
    """A threshold from cropped queries.

    Attributes:
        generated: Its effect on the cropped queries that were held out.
    """

    generated: Effect


@dataclass(frozen=True)
class Case:
    """A data set with one encoder.

    Attributes:
        name: Of the set.
        encoder: Its name in the tables.
        documents: How many documents, cropped queries and answerable human queries there are.
        generated: How many documents, cropped queries and answerable human queries there are.
        human: How many documents, cropped queries and answerable human queries there are.
        relevant: Relevant documents of a human query, on average.
        accuracy_generated: Share of the queries with a relevant document in their top K.
        accuracy_human: Share of the queries with a relevant document in their top K.
        default: Thresholds from cropped queries, by the rule of `taugate calibrate` and by that of `--max-loss 0.05`.
        certified: Thresholds from cropped queries, by the rule of `taugate calibrate` and by that of `--max-loss 0.05`.
        own: The default threshold from human queries.
    """

    name: str
    encoder: str
    documents: int
    generated: int
    human: int
    relevant: float
    accuracy_generated: Interval
    accuracy_human: Interval
    default: CroppedCut
    certified: CroppedCut
    own: Cut

    @property
    def accuracy_bias(self) -> float:
        """Accuracy on cropped queries less accuracy on human ones."""
        return self.accuracy_generated.mean - self.accuracy_human.mean

    @property
    def loss_bias(self) -> float:
        """Loss at the default threshold on held-out cropped queries less that on human queries."""
        return self.default.generated.lost.mean - self.default.human.lost.mean

    @classmethod
    def measure(cls, data: Path, public: PublicSet, encoder: tuple[str, str], seed: int) -> Self:
        """Crop queries as `taugate queries` does, calibrate as `taugate calibrate` does, and judge by human queries.

        Args:
            data: Folder of the data sets.
            public: The set.
            encoder: Its name in the tables, and what `--encoder` takes.
            seed: Of crops, calibrations and intervals.
        """
        title, source = encoder
        with tempfile.TemporaryDirectory() as scratch:
            folder = public.copy(data, Path(scratch))
            generate_crops(folder, MAX_QUERIES, seed)
            generated, human = (
                _Group.read(folder, split, source, Path(scratch) / split, seed) for split in (GENERATED, HUMAN)
            )
            from_crops, from_people = generated.calibrated(), human.calibrated()
        heldout = from_crops.parts["heldout"].members
        everybody, judges = np.arange(len(human.judged)), from_people.parts["heldout"].members

        crops, people = generated.scored(from_crops), human.scored(from_crops)

        def cut(kind: PolicyKind, tau: float | None) -> CroppedCut:
            return CroppedCut(
                kind, tau, human.effect(people, kind, tau, everybody), generated.effect(crops, kind, tau, heldout)
            )

        certified = next(
            each
            for each in from_crops.alternatives
            if (each.method, each.statement) == ("risk-control", "high-probability")
        )
        policy = from_people.policy
        effect = human.effect(human.scored(from_people), policy.kind, policy.tau, judges)
        return cls(
            name=public.name,
            encoder=title,
            documents=len(human.indexed.dataset.documents),
            generated=len(generated.judged),
            human=len(human.judged),
            relevant=float(np.mean([len(query.relevant) for query in human.indexed.dataset.answerable])),
            accuracy_generated=generated.accuracy(),
            accuracy_human=human.accuracy(),
            default=cut(from_crops.policy.kind, from_crops.policy.tau),
            certified=cut(certified.policy, certified.tau),
            own=Cut(policy.kind, policy.tau, effect),
        )


@dataclass(frozen=True)
class _Group:
    """The queries of one split, searched.

    Attributes:
        judged: All answerable ones.
    """

    indexed: IndexedSet
    judged: JudgedQueries
    seed: int

    @classmethod
    def read(cls, folder: Path, split: str, encoder: str, spool: Path, seed: int) -> Self:
        spool.mkdir()
        indexed = IndexedSet.read(folder, split, encoder, spool)
        k = CalibrationSettings().k
        judged = JudgedQueries.judge(indexed.dataset.answerable, indexed.encoded.answerable, indexed.index, k)
        return cls(indexed, judged, seed)

    def calibrated(self) -> Findings:
        """Calibrate with the defaults; the certified cut is among the alternatives."""
        rule = ThresholdRule("bootstrap", "similarity", max_loss=MAX_LOSS)
        return self.indexed.calibrate(CalibrationSettings(seed=self.seed, rule=rule))

    def scored(self, found: Findings) -> ScoredQueries:
        """Score these queries with the model of relevance of a calibration, on these queries or on others."""
        vectors, top = self.indexed.encoded.answerable, self.judged.top
        relevance = None if found.estimated is None else found.estimated.relevance.estimate(vectors, top)
        return ScoredQueries(self.judged, found.scored.unanswerable, relevance, None)

    def effect(self, scored: ScoredQueries, kind: PolicyKind, tau: float | None, rows: NDArray[np.int64]) -> Effect:
        """Measure what a threshold does to the queries at `rows`."""
        judges, some = self._judges(rows), scored.take(rows)
        kept = some.kept(kind, None if tau is None else np.float32(tau))
        lost = some.judged.lost("accuracy", kept)
        return Effect(judges.interval(lost, judges.labels), judges.interval(kept.mean(axis=1), judges.labels))

    def accuracy(self) -> Interval:
        """Return top-K accuracy of all answerable queries."""
        judges = self._judges(np.arange(len(self.judged)))
        return judges.interval(self.judged.accuracy(), judges.labels)

    def _judges(self, rows: NDArray[np.int64]) -> Judges:
        labels = self.indexed.labels
        return Judges(self.judged.take(rows), labels[rows], labels[len(self.judged) :], self.seed)
