"""A threshold for each stratum, the documents that share a value of one metadata field, and one that holds in all.

A loss of 2 % over all queries may be 1 % of the English ones and 9 % of the Swedish ones. A query belongs to a stratum
where a relevant document of it does. Two things are certified of each:

- of a search without a filter, that the stratum's queries lose at most δ. The threshold in force is the lowest of the
  strata's. That it holds in all of them is an intersection–union test (Berger 1982): nothing is divided.
- of a search filtered on the value, the same with a threshold of its own, measured on lists found within the filter.
  There are as many thresholds as strata, and the error is divided among them (Bonferroni).

Strata whose queries could certify nothing even without a loss are one stratum together; a search filtered on one of
them has no certified threshold.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.documents import relevant_passages
from taugate.calibration.metrics.ranking import JudgedQueries, ScoredQueries
from taugate.calibration.risk import words
from taugate.calibration.risk.certify import certificate, certify, queries_needed
from taugate.calibration.settings.rules import ThresholdRule
from taugate.calibration.threshold.calibration_queries import CalibrationQueries
from taugate.calibration.threshold.policy_choice import loss_limits
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.documents.columns import TagColumn
from taugate.retrieval.documents.filters import OneOf, Value, all_of
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.index.top_k import DocumentSubset, Index, TopK
from taugate.retrieval.policy.policy import PolicyKind
from taugate.retrieval.release.evidence import StrataRecord, StratumRecord
from taugate.retrieval.release.manifest import PolicyRecord
from taugate.retrieval.vectors.similarity import Float32

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class QueryStrata:
    """Answerable queries by the values that their relevant documents have of a field.

    several values where these differ.

    Attributes:
        field: Name in the metadata.
        metadata: Of all documents.
        members: Positions of the answerable queries of each value.
    """

    field: str
    metadata: Metadata
    members: Mapping[Value, Positions]

    @classmethod
    def group(cls, dataset: Dataset, field: str) -> "QueryStrata":
        """Group the queries of a data set by a field of the metadata.

        Args:
            dataset: Labelled queries and documents.
            field: Name in the metadata.

        Raises:
            InputError: Where no document, or none that is relevant, has the field.
        """
        metadata = Metadata.of(dataset.documents)
        try:
            metadata.check(all_of(OneOf.of(field, "")))
        except InputError as error:
            raise InputError(f"--strata metadata.{field}: {error}") from error
        column = metadata.columns[field]
        if isinstance(column, TagColumn):
            raise InputError(f"--strata metadata.{field}: holds lists of strings; name a field of single values")
        found: dict[Value, list[int]] = {}
        for number, passages in enumerate(relevant_passages(dataset.answerable, dataset.documents.parents)):
            keys = {key for position in passages.tolist() for key in column.keys(position)}
            for _, value in sorted(keys):
                found.setdefault(value, []).append(number)
        if not found:
            raise InputError(f"--strata metadata.{field}: no relevant document has the field; name one that they have")
        return cls(field, metadata, {value: np.array(found[value]) for value in found})


@dataclass(frozen=True)
class _FilteredIndex:
    """An index as a search filtered on one value sees it."""

    index: Index
    within: DocumentSubset

    def search(self, queries: Float32, k: int) -> TopK:
        return self.index.search_within(queries, k, self.within)

    def score(self, queries: Float32, positions: Positions) -> Float32:
        return self.index.score(queries, positions)

    def __len__(self) -> int:
        return len(self.within)


@dataclass(frozen=True)
class StrataCertifier:
    """Everything that certifying strata needs.

    Attributes:
        dataset: Labelled queries and documents.
        vectors: (n, d) float32 of the answerable queries.
        index: Of the documents.
        evidence: The queries.
        certifying: Positions of the queries that had no say in the policy.
        kind: Of the policy.
        rule: Metric, limits and confidence.
    """

    dataset: Dataset
    vectors: Float32
    index: Index
    evidence: CalibrationQueries
    certifying: Positions
    kind: PolicyKind
    rule: ThresholdRule

    def lowered(self, policy: PolicyRecord, strata: StrataRecord) -> PolicyRecord:
        """Lower τ, which is certified for all queries, to one that is certified for each stratum, too.

        Args:
            policy: In force.
            strata: What is certified of each stratum.
        """
        each = [*strata.strata, *([strata.others] if strata.others else [])]
        taus = [stratum.tau_without_filter for stratum in each if stratum.tau_without_filter is not None]
        tau = min([*taus, policy.tau]) if policy.tau is not None else None
        found = loss_limits(self.rule, self.evidence, self.certifying, self.kind)
        changes = {
            "tau": tau,
            "certificates": [certificate(limit, tau, self.rule) for limit in found],
            "guarantee": f"{policy.guarantee} {words.of_strata(strata)}",
        }
        return policy.model_copy(update=changes)

    def certify(self, strata: QueryStrata) -> StrataRecord:
        """Certify both thresholds of each stratum that is large enough, and the first of the others together.

        Args:
            strata: The strata, with their queries.
        """
        among = {value: np.intersect1d(members, self.certifying) for value, members in strata.members.items()}
        large = {value: members for value, members in among.items() if self._large_enough(members)}
        small = [value for value in among if value not in large]
        rule = replace(self.rule, confidence=1 - (1 - self.rule.confidence) / max(1, len(large)))
        records = []
        for value, members in large.items():
            within = DocumentSubset(strata.metadata.where(all_of(OneOf.of(strata.field, value))))
            filtered = certify(loss_limits(rule, *self._within(members, within), self.kind), rule)
            records.append(self._record(value, members, filtered.tau))
        rest = np.unique(np.concatenate([among[value] for value in small])) if small else np.arange(0)
        return StrataRecord(
            field=strata.field,
            strata=records,
            others=self._record(None, rest, None) if len(rest) else None,
            other_values=small,
        )

    def _large_enough(self, members: Positions) -> bool:
        """Say whether a stratum could be certified were nothing lost, which depends only on how many queries it has."""
        if not len(members):
            return False
        found = loss_limits(self.rule, self.evidence, members, self.kind)
        return all(queries_needed(limit, self.rule) <= limit.steps.queries for limit in found)

    def _record(self, value: Value | None, members: Positions, filtered: float | None) -> StratumRecord:
        """Write down a stratum, with what is certified of a search without a filter."""
        certified = certify(loss_limits(self.rule, self.evidence, members, self.kind), self.rule)
        loss, units = certified.certificates[0], self.evidence.units.take(members)
        return StratumRecord(
            value=value,
            tau=filtered,
            tau_without_filter=certified.tau,
            queries=len(members),
            units=units.count,
            queries_needed=max(each.queries_needed for each in certified.certificates),
            found=loss.found,
        )

    def _within(self, members: Positions, within: DocumentSubset) -> tuple[CalibrationQueries, Positions]:
        """Search the stratum's queries within its documents."""
        vectors = self.vectors[members]
        queries = [self.dataset.answerable[position] for position in members.tolist()]
        depth = min(self.evidence.scored.judged.grades.shape[1], len(within))
        filtered, parents = _FilteredIndex(self.index, within), self.dataset.documents.parents
        judged = JudgedQueries.judge(queries, vectors, filtered, depth, parents)
        estimated = self.evidence.estimated
        relevance = None if estimated is None else estimated.relevance.estimate(vectors, judged.top)
        scored = ScoredQueries(judged, TopK(judged.top.scores[:0], judged.top.positions[:0]), relevance, None)
        everything = np.arange(len(members))
        return replace(self.evidence, scored=scored, units=self.evidence.units.take(members)), everything
