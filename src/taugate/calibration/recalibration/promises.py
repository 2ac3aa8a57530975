"""Which promises of a release its recalibration makes again, on the newer data."""

from collections.abc import Sequence
from dataclasses import dataclass

from taugate.retrieval.release.evidence import Certificate, Interval, StrataRecord, StratumRecord
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.outcome_records import PolicyRecord
from taugate.retrieval.release.promises.asking import FIRST_STAGE, ask
from taugate.retrieval.release.promises.promise import StatedRecords
from taugate.retrieval.release.records import AbstentionRecord, ErrorLimit, RefusalRecord, WithdrawnRecord


@dataclass(frozen=True)
class NewerRelease:
    """What a newer release states, which was measured with its own thresholds; see `Evidence`.

    Attributes:
        stated: Its records.
        silence: See `Evidence`.
    """

    stated: StatedRecords
    silence: str = "the new release does not promise it"

    def losses(self, policy: PolicyRecord) -> Sequence[Certificate] | None:
        """Return the certificates, if they are of the same limits."""
        new = self.stated.policy
        limits = [[certificate.limit for certificate in one.certificates] for one in (policy, new)]
        return new.certificates if new.tau is not None and limits[0] == limits[1] else None

    def stratum(
        self, policy: PolicyRecord, strata: StrataRecord, stratum: StratumRecord
    ) -> Sequence[Certificate] | None:
        """Return the certificates of the policy, if the stratum has the same thresholds by itself."""
        new = self.stated.strata
        same = [] if new is None else [one for one in (*new.strata, new.others) if one and one.value == stratum.value]
        lacking = any(
            getattr(stratum, tau) is not None and all(getattr(one, tau) is None for one in same)
            for tau in ("tau", "tau_without_filter")
        )
        return None if lacking else self.losses(policy)

    def answered(self, record: AbstentionRecord) -> ErrorLimit | None:
        """Return the certified limit."""
        new = self.stated.abstention
        return new.answered_unanswerable if new is not None and new.certified else None

    def refused(self, record: AbstentionRecord) -> ErrorLimit | None:
        """Return the certified limit."""
        new = self.stated.abstention
        return new.empty_answerable if new is not None and new.certified else None

    def refusal(self, record: RefusalRecord) -> RefusalRecord | None:
        """Return the record of the new ρ."""
        return self.stated.refusal

    def lost(self, record: RefusalRecord) -> Interval | None:
        """Return what the new ρ loses."""
        return None if self.stated.refusal is None else self.stated.refusal.lost


def no_longer_promised(before: Manifest, new: Manifest) -> list[WithdrawnRecord]:
    """Name what a release promised that its recalibration does not."""
    withdrawn = ask(StatedRecords.of(before, before.strata), NewerRelease(StatedRecords.of(new, new.strata))).withdrawn
    if before.second_stage is not None:
        evidence = NewerRelease(StatedRecords.of(new.first_stage))
        withdrawn += ask(StatedRecords.of(before.second_stage.first), evidence, stage=FIRST_STAGE).withdrawn
    return withdrawn
