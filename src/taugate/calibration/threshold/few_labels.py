"""Threshold, metrics and record from few human judgements and a machine's scores of unjudged queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.inputs import OwnPassages, search_excluding_own
from taugate.calibration.relevance import LabelledSearch, ResultScorer
from taugate.errors import InputError
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.few_labels.population import (
    QueryPopulation,
    ScoredResults,
    Scores,
    Scoring,
    SourceComparison,
    hit_scores,
    loss_scores,
    losses,
)
from taugate.evidence.few_labels.prediction_powered import LossEstimates, ThresholdEstimate, candidate_thresholds
from taugate.evidence.few_labels.shares import ShareEstimates
from taugate.evidence.ranking import JudgedQueries, discounts
from taugate.evidence.risk import certify, words
from taugate.evidence.rules import CONFIDENCE, ThresholdRule
from taugate.policy.arrays import Float32, Float64, concatenate
from taugate.release import outcome_records
from taugate.release.evidence import Certificate, Estimate, Interval
from taugate.retrieval.index.top_k import TopK


@dataclass(frozen=True)
class FewLabels:
    """Few judged queries and many unjudged ones, searched and scored."""

    population: QueryPopulation  # all queries; the judged ones are the answerable queries, then the unanswerable ones
    relevant: NDArray[np.bool_]  # (n, K), judgements of the results by people
    units: SamplingUnits
    judged: JudgedQueries  # the answerable judged queries with their results
    splits: Sequence[str]
    machine: outcome_records.Machine | None  # machine that scored the results, None without unjudged queries

    @classmethod
    def of(cls, search: LabelledSearch, seed: int) -> "FewLabels | None":
        """Search the unjudged queries, and let the machine score the results of all queries.

        None if the data set was not read for estimates from few labels.

        Args:
            search: The searched data set, with the judged queries.
            seed: Seed of the division of the generated queries into those that fit the machine and those that
                recalibrate it.
        """
        dataset, judged, unanswerable = search.dataset, search.judged, search.unanswerable
        additional = dataset.other_queries
        if additional is None:
            return None
        queries = dataset.answerable + dataset.unanswerable
        complete = np.array([query.id not in additional.seen_only for query in queries])
        answerable = np.arange(len(queries)) < len(judged)
        if not (complete & answerable).any():
            raise InputError(
                f"no query with a relevant document was completely judged in split {additional.splits[0]}, so answers "
                "that the search misses are unknown; judge some queries with taugate judge"
            )
        top = TopK(
            np.concatenate([judged.top.scores, unanswerable.scores]),
            np.concatenate([judged.top.positions, unanswerable.positions]),
        )
        machine, relevance, unjudged = _machine_scores(search, additional.unjudged_own, top, seed)
        relevant = np.concatenate([judged.relevant, np.zeros(unanswerable.scores.shape, dtype=np.bool_)])
        return cls(
            QueryPopulation(
                judged=ScoredResults(top.scores, relevance),
                documents=search.cluster_ids,
                weights=np.array([query.weight for query in queries]),
                answerable=answerable,
                hits=np.asarray(relevant.any(axis=1)),
                complete=complete,
                unjudged=unjudged,
            ),
            relevant=relevant,
            units=SamplingUnits.from_clusters(search.cluster_ids),
            judged=judged,
            splits=additional.splits,
            machine=machine,
        )

    def policy(self, rule: ThresholdRule, k: int) -> outcome_records.PolicyRecord:
        """Take the strictest threshold that is shown to lose at most the rule's limit, or no threshold.

        Args:
            rule: Rule with the limit and the confidence.
            k: K, the number of results per query.
        """
        tau = self._strictest(rule, alone=False).safe
        certificate, at_tau = self.certificate(rule, tau), self._loss(tau, rule.confidence, one_sided=True)
        if tau is None:
            guarantee = self._shortage(rule, certificate)
        else:
            guarantee = self._guarantee(rule, certificate, k, uses_machine=at_tau.both.weight[0] > 0)
        return outcome_records.PolicyRecord(
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
            guarantee=guarantee,
            certificates=[certificate],
            choice=None,
            evidence=self.units.record,
        )

    def certificate(self, rule: ThresholdRule, tau: float | None) -> Certificate:
        """Estimate the loss at τ, with the upper limit that has the rule's confidence."""
        at_tau = self._loss(tau, rule.confidence, one_sided=True).both
        return Certificate(
            limit=words.ACCURACY,
            most=rule.max_loss,
            queries=int(self.population.answerable.sum()),
            effective_queries=float(at_tau.effective_labels[0]),
            unit=self.units.unit,
            units=self.units.count,
            found=float(self._accuracy().both.value[0]),
            loss=float(at_tau.value[0]),
            bound=float(at_tau.upper[0]),
            upper=float(at_tau.upper[0]),
            queries_needed=certify.queries_for_confidence(rule.max_loss, rule.confidence),
        )

    def metrics(
        self, measured: outcome_records.MetricsRecord, policy: outcome_records.PolicyRecord
    ) -> outcome_records.MetricsRecord:
        """Replace accuracy, NDCG and the kept share by estimates over the queries that people ask.

        Args:
            measured: Metrics of the judged answerable queries, counted without weights.
        """
        kept = self._kept(policy.tau)
        answerable = kept[: len(self.judged)]
        zeros = np.zeros(len(kept) - len(answerable))
        uncut = np.concatenate([self.judged.ndcg(), zeros])
        at_tau = np.concatenate([self.judged.ndcg(answerable), zeros])
        weights = self.population.weights[: len(answerable)]
        threshold = _no_cut(policy.tau)
        estimates = {
            "accuracy": self._accuracy(),
            "accuracy_at_tau": self._compare(
                np.any(self.relevant & kept, axis=1),
                lambda scores, decisions: hit_scores(np.where(decisions >= threshold, scores, 0.0)),
            ),
            "ndcg": self._compare(uncut, partial(_gain_at, _no_cut(None))),
            "ndcg_at_tau": self._compare(at_tau, partial(_gain_at, threshold)),
        }
        metrics = {name: Estimate(**_interval(sources.both).model_dump()) for name, sources in estimates.items()}
        for name in ("accuracy", "ndcg"):
            metrics[f"{name}_at_tau"] = _at_most(metrics[f"{name}_at_tau"], metrics[name])
        return measured.model_copy(
            update={**metrics, "kept_fraction": float(np.average(answerable.mean(axis=1), weights=weights))}
        )

    def record(self, policy: outcome_records.PolicyRecord, rule: ThresholdRule) -> outcome_records.LabelsRecord:
        """Record the estimates from labels alone, from the machine alone and from both together."""
        accuracy, loss = self._accuracy(), self._loss(policy.tau, CONFIDENCE)
        max_loss = rule.max_loss if policy.statement == "labels" else None
        population, unjudged = self.population, self.population.unjudged
        machine = None
        if accuracy.machine is not None and loss.machine is not None:
            tau = None if max_loss is None else self._strictest_of_machine(max_loss)
            machine = outcome_records.MachineRecord(
                accuracy=float(accuracy.machine[0]), loss=float(loss.machine[0]), tau=tau
            )
        nothing = Interval(mean=0.0, lower=0.0, upper=0.0)  # without a cut, nothing is lost
        alone, both = (
            outcome_records.SourceRecord(
                accuracy=_interval(accuracy.alone if only_labels else accuracy.both),
                loss=nothing if policy.tau is None else _interval(loss.alone if only_labels else loss.both),
                tau=None if max_loss is None else _threshold(self._strictest(rule, alone=only_labels)),
            )
            for only_labels in (True, False)
        )
        return outcome_records.LabelsRecord(
            splits=list(self.splits),
            judged=len(population.weights),
            answerable=int(population.answerable.sum()),
            unjudged=0 if unjudged is None else len(unjudged.decisions),
            effective=float(population.weights.sum() ** 2 / np.square(population.weights).sum()),
            machine=self.machine,
            alone=alone,
            machine_only=machine,
            both=both,
            accuracy=_machine_worth(accuracy),
            loss=_machine_worth(loss),
            most=max_loss,
        )

    def _accuracy(self) -> SourceComparison:
        return self._compare(np.any(self.relevant, axis=1), lambda scores, _: hit_scores(scores))

    def _compare(self, outcomes: NDArray[np.generic] | np.bool_, scoring: Scoring) -> SourceComparison:
        return self.population.compare(np.asarray(outcomes, np.float64)[:, None], scoring, CONFIDENCE, complete=True)

    def _loss(self, tau: float | None, confidence: float, *, one_sided: bool = False) -> SourceComparison:
        """Estimate the loss at τ from the three sources, using all judged queries."""
        thresholds = np.array([_no_cut(tau)])
        level = 2 * confidence - 1 if one_sided else confidence
        return self.population.compare(self._lost(thresholds), partial(_losses_at, thresholds), level, complete=False)

    def _lost(self, thresholds: Float32) -> Float64:
        return losses(self.relevant, self.population.judged.decisions, thresholds)

    def _candidates(self) -> Float32:
        unjudged = self.population.unjudged
        decisions = [self.population.judged.decisions] + ([] if unjudged is None else [unjudged.decisions])
        return candidate_thresholds(np.concatenate(decisions))

    def _strictest(self, rule: ThresholdRule, *, alone: bool) -> ThresholdEstimate:
        thresholds = self._candidates()
        judged, unjudged = self.population.sample(
            self._lost(thresholds), partial(_losses_at, thresholds), complete=False
        )
        estimates = LossEstimates.of(thresholds, judged, None if alone else unjudged, rule.confidence)
        return estimates.strictest(rule.max_loss)

    def _strictest_of_machine(self, max_loss: float) -> float | None:
        """Return the strictest candidate whose loss is within the limit by the machine's scores, None if none is."""
        thresholds = self._candidates()
        lost = self.population.compare(
            self._lost(thresholds), partial(_losses_at, thresholds), CONFIDENCE, complete=False
        )
        if lost.machine is None:
            return None
        passed = thresholds[lost.machine <= max_loss]
        return float(passed[-1]) if len(passed) else None

    def _kept(self, tau: float | None) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = self.population.judged.decisions >= _no_cut(tau)
        return kept

    def _guarantee(self, rule: ThresholdRule, certificate: Certificate, k: int, *, uses_machine: np.bool_) -> str:
        statement = (
            f"With {100 * rule.confidence:.4g} % confidence, at most {100 * rule.max_loss:.4g} % of the answerable "
            f"queries that people ask lose every relevant document of their top {k}."
        )
        if self.population.unjudged is None or not uses_machine:
            return (
                f"{statement} This rests on {certificate.queries:,} judged queries alone, drawn from those that people "
                "ask."
            )
        return (
            f"{statement} This rests on {certificate.queries:,} judged queries and a machine's scores of "
            f"{len(self.population.unjudged.decisions):,} others, whose error the judgements correct "
            "(prediction-powered inference). The limit is approximate, and assumes that both are drawn from the "
            "queries that people ask."
        )

    def _shortage(self, rule: ThresholdRule, certificate: Certificate) -> str:
        return (
            f"Nothing is shown: with {certificate.queries:,} judged queries that have an answer, no threshold can be "
            f"shown to lose at most {100 * rule.max_loss:.4g} % ({100 * rule.confidence:.4g} % confidence); labels "
            f"alone need {certificate.queries_needed:,} or more."
        )


def _machine_scores(
    search: LabelledSearch, unjudged_own: OwnPassages, top: TopK, seed: int
) -> tuple[outcome_records.Machine | None, Float32, ScoredResults | None]:
    """Return the machine with its scores of judged and unjudged queries; without the latter, scores are similarities.

    Args:
        unjudged_own: Passages that are the unjudged queries themselves.
    """
    encoded, index, k = search.encoded, search.index, top.scores.shape[1]
    if encoded.unjudged is None or not len(encoded.unjudged):
        return None, top.scores, None
    unjudged = search_excluding_own(index, unjudged_own, encoded.unjudged, k)
    scorer = ResultScorer.fit(search.dataset, encoded, index, k, seed)
    judged = scorer.score(concatenate([encoded.answerable, encoded.unanswerable]), top)
    return scorer.name, judged, ScoredResults(unjudged.scores, scorer.score(encoded.unjudged, unjudged))


def _no_cut(tau: float | None) -> np.float32:
    """Return τ in float32, as scores are compared with it; below every score if there is none."""
    return np.float32(-np.inf if tau is None else tau)


def _losses_at(thresholds: Float32, relevance: Scores, decisions: Scores) -> Float64:
    return loss_scores(relevance, decisions, thresholds)


def _gain_at(threshold: np.float32, relevance: Scores, decisions: Scores) -> Float64:
    """Return the discounted gain of each query that the machine expects, (q, 1)."""
    weights = discounts(relevance.shape[1])
    gain: Float64 = np.where(decisions >= threshold, relevance, 0.0).astype(np.float64) @ weights
    share: Float64 = gain[:, None] / weights.sum()
    return share


def _interval(share: ShareEstimates) -> Interval:
    return Interval(mean=float(share.value[0]), lower=float(share.lower[0]), upper=float(share.upper[0]))


def _at_most(with_cut: Estimate, without_cut: Estimate) -> Estimate:
    """Limit the estimate with a cut by the one without, because both were made separately and a cut adds nothing."""
    ends = {name: min(getattr(with_cut, name), getattr(without_cut, name)) for name in ("mean", "lower", "upper")}
    return Estimate(**ends)


def _machine_worth(sources: SourceComparison) -> outcome_records.MachineWorth:
    both = sources.both
    return outcome_records.MachineWorth(
        r2=float(sources.r2[0]), weight=float(both.weight[0]), labels=float(both.effective_labels[0])
    )


def _threshold(estimate: ThresholdEstimate) -> outcome_records.ThresholdInterval:
    return outcome_records.ThresholdInterval(
        safe=estimate.safe, value=estimate.value, lower=estimate.lowest, upper=estimate.highest
    )
