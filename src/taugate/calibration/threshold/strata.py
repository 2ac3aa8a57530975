"""Thresholds for strata, the groups of documents that share a value of one metadata field, and one that holds in all.

A loss of 2 % over all queries may be 1 % of the English ones and 9 % of the Swedish ones. A query belongs to a stratum
if one of its relevant documents does. Each stratum gets two certificates:

- For a search without a filter, that the stratum's queries lose at most δ. The threshold in force is the lowest of the
  strata's thresholds. That it holds in all strata is an intersection–union test (Berger 1982), so the error is not
  divided.
- For a search filtered on the value, the same with a separate threshold, measured on results within the filter. There
  are as many thresholds as strata, and the error is divided among them (Bonferroni).

Strata with too few queries to certify anything are joined into one stratum; a search filtered on one of them has no
certified threshold.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.inputs import judge_queries, relevant_passages
from taugate.data.beir import Dataset
from taugate.errors import InputError
from taugate.evidence.ranking import ScoredQueries
from taugate.evidence.risk import words
from taugate.evidence.risk.certify import certificate, certify, enough_queries
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.policy_choice import CalibrationQueries, loss_limits
from taugate.policy.arrays import Float32, QueryVectors
from taugate.policy.names import PolicyKind
from taugate.policy.relevance import Relevance
from taugate.release.evidence import Certificate, StrataRecord, StratumRecord
from taugate.release.outcome_records import PolicyRecord
from taugate.retrieval.documents.columns import TagColumn
from taugate.retrieval.documents.filters import OneOf, Value, all_of, composed
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.index.top_k import DocumentSubset, Index, TopK

Positions = NDArray[np.int64]
Certificates = list[Certificate] | None


@dataclass(frozen=True)
class QueryStrata:
    """Answerable queries grouped by their relevant documents' values of a metadata field.

    A query whose relevant documents have different values belongs to several groups.
    """

    field: str
    metadata: Metadata
    members: Mapping[Value, Positions]  # positions of the answerable queries by value

    @classmethod
    def group(cls, dataset: Dataset, field: str) -> "QueryStrata":
        """Group the queries of a data set by a field of the metadata."""
        metadata = Metadata.of(dataset.documents)
        try:
            metadata.check(all_of(OneOf.of(field, "")))
        except InputError as error:
            raise InputError(f"--strata metadata.{field}: {error}") from error
        column = metadata.columns[composed(field)]
        if isinstance(column, TagColumn):
            raise InputError(f"--strata metadata.{field}: holds lists of strings; choose a field of single values")
        members: dict[Value, list[int]] = {}
        for number, passages in enumerate(relevant_passages(dataset.answerable, dataset.documents.parents)):
            keys = {key for position in passages.tolist() for key in column.keys(position)}
            for _, value in sorted(keys):
                members.setdefault(value, []).append(number)
        if not members:
            raise InputError(f"--strata metadata.{field}: no relevant document has this field; choose another field")
        return cls(composed(field), metadata, {value: np.array(members[value]) for value in members})


@dataclass(frozen=True)
class _FilteredIndex:
    """An index restricted to the documents that pass a filter."""

    index: Index
    within: DocumentSubset

    def search(self, queries: QueryVectors, k: int) -> TopK:
        return self.index.search_within(queries, k, self.within)

    def score(self, queries: QueryVectors, positions: Positions) -> Float32:
        return self.index.score(queries, positions)

    def __len__(self) -> int:
        return len(self.within)


@dataclass(frozen=True)
class StrataCertifier:
    """Certifies thresholds for strata."""

    dataset: Dataset  # labelled queries and documents
    vectors: QueryVectors  # (n, d) float32 vectors of the answerable queries
    index: Index
    evidence: CalibrationQueries
    certifying: Positions  # positions of the queries that were not used to fit or choose the policy
    kind: PolicyKind
    rule: ThresholdRule  # rule with the metric, the limits and the confidence

    def lowered(self, policy: PolicyRecord, strata: StrataRecord) -> PolicyRecord:
        """Lower τ, certified for all queries, so that it is also certified for each stratum."""
        records = [*strata.strata, *([strata.others] if strata.others else [])]
        taus = [stratum.tau_without_filter for stratum in records if stratum.tau_without_filter is not None]
        tau = min([*taus, policy.tau]) if policy.tau is not None else None
        limits = loss_limits(self.rule, self.evidence, self.certifying, self.kind)
        changes = {
            "tau": tau,
            "certificates": [certificate(limit, tau, self.rule) for limit in limits],
            "guarantee": f"{policy.guarantee} {words.of_strata(strata)}",
        }
        return policy.model_copy(update=changes)

    def certify(self, strata: QueryStrata) -> StrataRecord:
        """Certify both thresholds of each stratum that is large enough, and the first for the joined small strata."""
        among = {value: np.intersect1d(members, self.certifying) for value, members in strata.members.items()}
        large = {value: members for value, members in among.items() if self._large_enough(members)}
        small = [value for value in among if value not in large]
        rule = replace(self.rule, confidence=1 - (1 - self.rule.confidence) / max(1, len(large)))
        records = []
        for value, members in large.items():
            within = DocumentSubset(strata.metadata.where(all_of(OneOf.of(strata.field, value))))
            filtered = certify(loss_limits(rule, *self._within(members, within), self.kind), rule)
            records.append(self._record(value, members, filtered.tau))
        joined = np.unique(np.concatenate([among[value] for value in small])) if small else np.arange(0)
        return StrataRecord(
            field=strata.field,
            strata=records,
            others=self._record(None, joined, None) if len(joined) else None,
            other_values=small,
        )

    def certificates(
        self, strata: QueryStrata, record: StrataRecord, stratum: StratumRecord, tau: float | None
    ) -> Certificates:
        """Measure the limits again at the thresholds of a stratum that was certified before.

        None if no labelled query is about it; empty if no document belongs to it.

        Args:
            stratum: The stratum; the small ones together if its value is None.
            tau: Threshold of a search without a filter.
        """
        values = record.other_values if stratum.value is None else [stratum.value]
        within = DocumentSubset(strata.metadata.where(all_of(OneOf.of(strata.field, *values))))
        if not len(within):
            return []
        named = [members for value, members in strata.members.items() if value in values]
        members = np.intersect1d(np.unique(np.concatenate([np.arange(0), *named])), self.certifying)
        if not len(members):
            return None
        certificates: list[Certificate] = []
        if stratum.tau_without_filter is not None:
            limits = loss_limits(self.rule, self.evidence, members, self.kind)
            certificates += [certificate(limit, tau, self.rule) for limit in limits]
        if stratum.tau is not None:
            rule = replace(self.rule, confidence=1 - (1 - self.rule.confidence) / len(record.strata))
            limits = loss_limits(rule, *self._within(members, within), self.kind)
            certificates += [certificate(limit, stratum.tau, rule) for limit in limits]
        return certificates

    def _large_enough(self, members: Positions) -> bool:
        """Return whether a stratum has enough queries to be certified if nothing is lost."""
        if not len(members):
            return False
        limits = loss_limits(self.rule, self.evidence, members, self.kind)
        return enough_queries(limits, self.rule)

    def _record(self, value: Value | None, members: Positions, filtered: float | None) -> StratumRecord:
        """Record a stratum with its certificate for a search without a filter."""
        certified = certify(loss_limits(self.rule, self.evidence, members, self.kind), self.rule)
        loss, units = certified.certificates[0], self.evidence.units.take(members)
        return StratumRecord(
            value=value,
            tau=filtered,
            tau_without_filter=certified.tau,
            queries=len(members),
            units=units.count,
            queries_needed=max(item.queries_needed for item in certified.certificates),
            found=loss.found,
        )

    def _within(self, members: Positions, within: DocumentSubset) -> tuple[CalibrationQueries, Positions]:
        """Search the stratum's queries within its documents."""
        vectors = self.vectors[members]
        queries = [self.dataset.answerable[position] for position in members.tolist()]
        depth = min(self.evidence.scored.judged.grades.shape[1], len(within))
        filtered, parents = _FilteredIndex(self.index, within), self.dataset.documents.parents
        judged = judge_queries(queries, vectors, filtered, depth, parents)
        estimated = self.evidence.estimated
        model = None if estimated is None else estimated.relevance
        relevance = model.estimate(vectors, judged.top) if isinstance(model, Relevance) else None
        answering = self.evidence.scored.answering
        if answering is not None:  # the service refuses by the best similarity within the filter
            answering = replace(answering, answerable=judged.top.scores[:, 0], unanswerable=judged.top.scores[:0, 0])
        none = TopK(judged.top.scores[:0], judged.top.positions[:0])
        scored = ScoredQueries(judged, none, relevance, None, answering)
        everything = np.arange(len(members))
        return replace(self.evidence, scored=scored, units=self.evidence.units.take(members)), everything
