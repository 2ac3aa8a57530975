"""Promises of what the threshold loses: over all queries, and in each stratum."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from taugate.retrieval.release.evidence import StrataRecord, StratumRecord
from taugate.retrieval.release.outcome_records import PolicyRecord
from taugate.retrieval.release.promises.promise import (
    NOTHING,
    Evidence,
    Measured,
    Promise,
    StatedRecords,
    percent_at_most,
)

# By what is limited (`Certificate.limit`): the name, and what happens to at most a share of the queries.
_LIMITS = {
    "accuracy": ("loss", "At most {} of the answerable queries lose their answer to the threshold."),
    "ndcg": ("loss", "NDCG is at most {} lower than without the threshold."),
    "empty": ("empty", "At most {} of the answerable queries are left without a result by the threshold."),
}


@dataclass(frozen=True)
class LimitedLoss(Promise):
    """At most a share of a metric, or of the queries, is lost at τ.

    Attributes:
        policy: The policy.
        place: Place of the limit among the policy's certificates.
    """

    policy: PolicyRecord
    place: int

    @classmethod
    def of(cls, records: StatedRecords) -> Iterator[Promise]:
        """Yield the promises of a policy: none if nothing is certified."""
        policy = records.policy
        if policy.tau is not None and policy.statement is not None and policy.certified is None:
            for place, certificate in enumerate(policy.certificates):
                name, words = _LIMITS[certificate.limit]
                yield cls(name, words.format(percent_at_most(certificate.most)), certificate.most, policy, place)

    def measured(self, evidence: Evidence) -> Measured | None:
        """Certify the same limit again."""
        certificates = evidence.losses(self.policy)
        if certificates is None:
            return None
        certificate = certificates[self.place]
        return Measured(certificate.loss, certificate.bound, certificate.queries)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Mark the policy as not certified."""
        return replace(records, policy=records.policy.model_copy(update={"certified": False, "guarantee": NOTHING}))


@dataclass(frozen=True)
class LimitedStratumLoss(Promise):
    """The limit on the loss also holds for the documents with one value of a field, with a filter on it and without.

    Attributes:
        policy: The policy.
        strata: All strata.
        stratum: The stratum; several values together if its value is None.
    """

    policy: PolicyRecord
    strata: StrataRecord
    stratum: StratumRecord

    @classmethod
    def of(cls, records: StatedRecords) -> Iterator[Promise]:
        """Yield the promises of the strata with a threshold."""
        strata, policy = records.strata, records.policy
        for stratum in () if strata is None else (*strata.strata, strata.others):
            if strata and stratum and (stratum.tau, stratum.tau_without_filter) != (None, None):
                values = strata.other_values if stratum.value is None else [stratum.value]
                named = f"{strata.field} {', '.join(map(str, values))}"
                words = f"The limit of the loss also holds for {named}."
                yield cls(f"stratum {named}", words, policy.certificates[0].most, policy, strata, stratum)

    def measured(self, evidence: Evidence) -> Measured | None:
        """Certify every limit of the policy again, at both thresholds of the stratum."""
        certificates = evidence.stratum(self.policy, self.strata, self.stratum)
        if not certificates:
            return None if certificates is None else Measured(0.0, 0.0, 0)
        worst = max(certificates, key=lambda certificate: certificate.bound - certificate.most)
        return Measured(worst.loss, self.limit + worst.bound - worst.most, worst.queries)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Take the thresholds of the stratum away, so that no reply within its filter is calibrated."""
        if records.strata is None:
            return records
        taken = self.stratum.model_copy(update={"tau": None, "tau_without_filter": None})
        strata, remaining = (
            [taken if stratum == self.stratum else stratum for stratum in column]
            for column in (records.strata.strata, [records.strata.others])
        )
        return replace(records, strata=records.strata.model_copy(update={"strata": strata, "others": remaining[0]}))
