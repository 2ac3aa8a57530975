"""Few judgements of people, with a machine's scores of the queries that nobody judged: threshold, metrics, record."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.labels.asked import AskedQueries, Comparison, ScoredResults, Scores, Scoring
from taugate.calibration.labels.machine import hit_scores, loss_scores, losses
from taugate.calibration.labels.shares import Float64, ShareEstimates
from taugate.calibration.labels.threshold import LossEstimates, ThresholdEstimate, candidate_thresholds
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.metrics.own_documents import search_others
from taugate.calibration.metrics.ranking import JudgedQueries, discounts
from taugate.calibration.risk import bounds, words
from taugate.calibration.settings.rules import CONFIDENCE, ThresholdRule
from taugate.calibration.threshold.machine import ResultScorer
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.index.top_k import Searchable, TopK
from taugate.retrieval.release.evidence import Certificate, Estimate, Interval
from taugate.retrieval.release.labels import (
    LabelsRecord,
    Machine,
    MachineRecord,
    MachineWorth,
    SourceRecord,
    ThresholdInterval,
)
from taugate.retrieval.release.manifest import MetricsRecord, PolicyRecord
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class FewLabels:
    """Few judged queries and many unjudged ones, searched and scored.

    Attributes:
        asked: All of them; the judged ones are the answerable queries, then the unanswerable ones.
        relevant: (n, K), what people say of each result.
        units: What counts as one draw among the judged queries.
        judged: The answerable ones with their results.
        splits: That were read.
        machine: That scored the results, None without unjudged queries.
    """

    asked: AskedQueries
    relevant: NDArray[np.bool_]
    units: SamplingUnits
    judged: JudgedQueries
    splits: Sequence[str]
    machine: Machine | None

    @classmethod
    def search(
        cls,
        dataset: Dataset,
        encoded: EncodedTexts,
        index: Searchable,
        judged: JudgedQueries,
        unanswerable: TopK,
        seed: int,
    ) -> "FewLabels | None":
        """Search the queries that nobody judged, and let the machine score the results of all.

        Args:
            dataset: Judged queries, and those beside them.
            encoded: Vectors of all.
            index: Of the documents.
            judged: The answerable queries with their results.
            unanswerable: Results of the others.
            seed: Of the division of the generated queries into those that fit the machine and those that recalibrate
                it. None where the data set was not read for that.

        Raises:
            InputError: Where no answerable query was judged whole.
        """
        others = dataset.others
        if others is None:
            return None
        queries = dataset.answerable + dataset.unanswerable
        complete = np.array([query.id not in others.seen_only for query in queries])
        answerable = np.arange(len(queries)) < len(judged)
        if not (complete & answerable).any():
            raise InputError(
                f"no query with a relevant document was judged whole in split {others.splits[0]}, so nothing is known "
                "of the answers that the search misses; judge some queries with taugate judge"
            )
        top = TopK(
            np.concatenate([judged.top.scores, unanswerable.scores]),
            np.concatenate([judged.top.positions, unanswerable.positions]),
        )
        relevance, unjudged = top.scores, None
        machine: Machine | None = None
        if encoded.unjudged is not None and len(encoded.unjudged):
            found = search_others(index, others.unjudged_own, encoded.unjudged, top.scores.shape[1])
            scorer = ResultScorer.fit(dataset, encoded, index, top.scores.shape[1], seed)
            machine = scorer.name
            relevance = scorer.score(np.concatenate([encoded.answerable, encoded.unanswerable]), top)
            unjudged = ScoredResults(found.scores, scorer.score(encoded.unjudged, found))
        labels = clusters(queries)
        relevant = np.concatenate([judged.relevant, np.zeros(unanswerable.scores.shape, dtype=np.bool_)])
        return cls(
            AskedQueries(
                judged=ScoredResults(top.scores, relevance),
                documents=labels,
                weights=np.array([query.weight for query in queries]),
                answerable=answerable,
                found=np.asarray(relevant.any(axis=1)),
                complete=complete,
                unjudged=unjudged,
            ),
            relevant=relevant,
            units=SamplingUnits.from_labels(labels),
            judged=judged,
            splits=others.splits,
            machine=machine,
        )

    def policy(self, rule: ThresholdRule, k: int) -> PolicyRecord:
        """Take the strictest threshold that is shown to lose at most the rule's limit, or none where none is.

        Args:
            rule: Limit and confidence.
            k: K, results of a query.
        """
        tau = self._strictest(rule, alone=False).safe
        at_tau = self._loss(tau, rule.confidence, one_sided=True)
        judged = int(self.asked.answerable.sum())
        certificate = Certificate(
            limit=words.ACCURACY,
            most=rule.max_loss,
            queries=judged,
            effective_queries=float(at_tau.both.worth[0]),
            unit=self.units.unit,
            units=self.units.count,
            found=float(self._accuracy().both.value[0]),
            loss=float(at_tau.both.value[0]),
            bound=float(at_tau.both.upper[0]),
            upper=float(at_tau.both.upper[0]),
            queries_needed=bounds.queries_for_confidence(rule.max_loss, rule.confidence),
        )
        if tau is None:
            said = self._shortage(rule, certificate)
        else:
            said = self._guarantee(rule, certificate, k, believed=at_tau.both.weight[0] > 0)
        return PolicyRecord(
            kind="none" if tau is None else "similarity",
            tau=tau,
            psi=None,
            k=k,
            method="risk-control",
            statement="labels",
            metric="accuracy",
            max_loss=rule.max_loss,
            max_empty=None,
            confidence=rule.confidence,
            guarantee=said,
            certificates=[certificate],
            choice=None,
            evidence=self.units.record,
        )

    def metrics(self, measured: MetricsRecord, policy: PolicyRecord) -> MetricsRecord:
        """Replace accuracy, NDCG and the share kept by estimates over the queries that people ask.

        Args:
            measured: Of the judged answerable queries, each counted once.
            policy: In force.
        """
        kept = self._kept(policy.tau)
        answerable = kept[: len(self.judged)]
        nothing = np.zeros(len(kept) - len(answerable))
        whole = np.concatenate([self.judged.ndcg(), nothing])
        left = np.concatenate([self.judged.ndcg(answerable), nothing])
        weights = self.asked.weights[: len(answerable)]
        threshold = _no_cut(policy.tau)
        estimates = {
            "accuracy": self._accuracy(),
            "accuracy_at_tau": self._compare(np.any(self.relevant & kept, axis=1), partial(_hits_at, threshold)),
            "ndcg": self._compare(whole, partial(_gain_at, _no_cut(None))),
            "ndcg_at_tau": self._compare(left, partial(_gain_at, threshold)),
        }
        found = {name: _estimate(each.both) for name, each in estimates.items()}
        for name in ("accuracy", "ndcg"):
            found[f"{name}_at_tau"] = _at_most(found[f"{name}_at_tau"], found[name])
        return measured.model_copy(
            update={
                **found,
                "kept_fraction": float(np.average(answerable.mean(axis=1), weights=weights)),
            }
        )

    def record(self, policy: PolicyRecord, rule: ThresholdRule) -> LabelsRecord:
        """Write down what labels and machine say, each alone and both together.

        Args:
            policy: In force.
            rule: That was asked for.
        """
        accuracy, loss = self._accuracy(), self._loss(policy.tau, CONFIDENCE)
        most = rule.max_loss if policy.statement == "labels" else None
        asked, unjudged = self.asked, self.asked.unjudged
        machine = None
        if accuracy.machine is not None and loss.machine is not None:
            tau = None if most is None else self._strictest_of_machine(most)
            machine = MachineRecord(accuracy=float(accuracy.machine[0]), loss=float(loss.machine[0]), tau=tau)
        nothing = Interval(mean=0.0, lower=0.0, upper=0.0)  # without a cut, nothing is lost
        alone, both = (
            SourceRecord(
                accuracy=_interval(accuracy.alone if only_labels else accuracy.both),
                loss=nothing if policy.tau is None else _interval(loss.alone if only_labels else loss.both),
                tau=None if most is None else _threshold(self._strictest(rule, alone=only_labels)),
            )
            for only_labels in (True, False)
        )
        return LabelsRecord(
            splits=list(self.splits),
            judged=len(asked.weights),
            answerable=int(asked.answerable.sum()),
            unjudged=0 if unjudged is None else len(unjudged.decisions),
            effective=float(asked.weights.sum() ** 2 / np.square(asked.weights).sum()),
            machine=self.machine,
            alone=alone,
            machine_only=machine,
            both=both,
            accuracy=_worth(accuracy),
            loss=_worth(loss),
            most=most,
        )

    def _accuracy(self) -> Comparison:
        return self._compare(np.any(self.relevant, axis=1), _hits)

    def _compare(self, outcomes: NDArray[np.generic] | np.bool_, scoring: Scoring) -> Comparison:
        return self.asked.compare(np.asarray(outcomes, np.float64)[:, None], scoring, CONFIDENCE, complete=True)

    def _loss(self, tau: float | None, confidence: float, *, one_sided: bool = False) -> Comparison:
        """Compare what the three sources say of the loss at τ, from all judged queries."""
        thresholds = np.array([_no_cut(tau)])
        level = 2 * confidence - 1 if one_sided else confidence
        return self.asked.compare(self._lost(thresholds), partial(_losses_at, thresholds), level, complete=False)

    def _lost(self, thresholds: Float32) -> Float64:
        return losses(self.relevant, self.asked.judged.decisions, thresholds)

    def _candidates(self) -> Float32:
        unjudged = self.asked.unjudged
        every = [self.asked.judged.decisions] + ([] if unjudged is None else [unjudged.decisions])
        return candidate_thresholds(np.concatenate(every))

    def _strictest(self, rule: ThresholdRule, *, alone: bool) -> ThresholdEstimate:
        thresholds = self._candidates()
        judged, unjudged = self.asked.sample(self._lost(thresholds), partial(_losses_at, thresholds), complete=False)
        found = LossEstimates.of(thresholds, judged, None if alone else unjudged, rule.confidence)
        return found.strictest(rule.max_loss)

    def _strictest_of_machine(self, most: float) -> float | None:
        """Return the strictest candidate whose loss the machine takes to be within the limit, None where none is."""
        thresholds = self._candidates()
        lost = self.asked.compare(self._lost(thresholds), partial(_losses_at, thresholds), CONFIDENCE, complete=False)
        if lost.machine is None:
            return None
        passed = thresholds[lost.machine <= most]
        return float(passed[-1]) if len(passed) else None

    def _kept(self, tau: float | None) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = self.asked.judged.decisions >= _no_cut(tau)
        return kept

    def _guarantee(self, rule: ThresholdRule, certificate: Certificate, k: int, *, believed: np.bool_) -> str:
        said = (
            f"With {100 * rule.confidence:.4g} % confidence, at most {100 * rule.max_loss:.4g} % of the answerable "
            f"queries that people ask lose every relevant document of their top {k}."
        )
        if self.asked.unjudged is None or not believed:
            return (
                f"{said} This rests on {certificate.queries:,} judged queries alone, drawn from those that people ask."
            )
        return (
            f"{said} This rests on {certificate.queries:,} judged queries and a machine's scores of "
            f"{len(self.asked.unjudged.decisions):,} others, whose error the judgements correct (prediction-powered "
            "inference). The limit is approximate, and assumes that both are drawn from the queries that people ask."
        )

    def _shortage(self, rule: ThresholdRule, certificate: Certificate) -> str:
        return (
            f"Nothing is shown: with {certificate.queries:,} judged queries that have an answer, no threshold can be "
            f"shown to lose at most {100 * rule.max_loss:.4g} % ({100 * rule.confidence:.4g} % confidence); labels "
            f"alone need {certificate.queries_needed:,} or more."
        )


def _no_cut(tau: float | None) -> np.float32:
    """Return τ in float32, as scores are compared with it; below every score where there is none."""
    return np.float32(-np.inf if tau is None else tau)


def _hits(relevance: Scores, _decisions: Scores) -> Float64:
    return hit_scores(relevance)


def _hits_at(threshold: np.float32, relevance: Scores, decisions: Scores) -> Float64:
    return hit_scores(np.where(decisions >= threshold, relevance, 0.0))


def _losses_at(thresholds: Float32, relevance: Scores, decisions: Scores) -> Float64:
    return loss_scores(relevance, decisions, thresholds)


def _gain_at(threshold: np.float32, relevance: Scores, decisions: Scores) -> Float64:
    """Return the discounted gain that the machine expects of each query, (q, 1)."""
    weights = discounts(relevance.shape[1])
    gain: Float64 = np.where(decisions >= threshold, relevance, 0.0).astype(np.float64) @ weights
    share: Float64 = gain[:, None] / weights.sum()
    return share


def _interval(found: ShareEstimates) -> Interval:
    return Interval(mean=float(found.value[0]), lower=float(found.lower[0]), upper=float(found.upper[0]))


def _estimate(found: ShareEstimates) -> Estimate:
    return Estimate(**_interval(found).model_dump())


def _at_most(found: Estimate, without_cut: Estimate) -> Estimate:
    """Limit an estimate after the cut by the one before, from which it was made separately; a cut adds nothing."""
    ends = {name: min(getattr(found, name), getattr(without_cut, name)) for name in ("mean", "lower", "upper")}
    return Estimate(**ends)


def _worth(found: Comparison) -> MachineWorth:
    both = found.both
    return MachineWorth(r2=float(found.r2[0]), weight=float(both.weight[0]), labels=float(both.worth[0]))


def _threshold(found: ThresholdEstimate) -> ThresholdInterval:
    return ThresholdInterval(safe=found.safe, value=found.value, lower=found.lowest, upper=found.highest)
