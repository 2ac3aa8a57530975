"""Which promises of a release hold without some of its documents, although no query is asked again.

Scores of the remaining documents do not change, so the best score of a query can only fall. That keeps a limit on
questions that get a result although no document answers them. What is lost is another matter: a document may move up
into the results that was not counted, and the score by which a query is refused may fall below the threshold.
"""

from dataclasses import dataclass
from typing import Any

from taugate.retrieval.release.evidence import Certificate, Interval, StrataRecord, StratumRecord
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.outcome_records import PolicyRecord
from taugate.retrieval.release.promises.asking import FIRST_STAGE, ask, inherited_state
from taugate.retrieval.release.promises.promise import StatedRecords
from taugate.retrieval.release.records import AbstentionRecord, ErrorLimit, RefusalRecord


@dataclass(frozen=True)
class RemovalEvidence:
    """What a removal cannot break; see `Evidence`.

    Attributes:
        best_scores_fall: Whether the score by which queries are refused can only fall.
        silence: See `Evidence`.
    """

    best_scores_fall: bool
    silence: str = "documents were removed, and no labelled query was asked"

    def losses(self, policy: PolicyRecord) -> list[Certificate] | None:
        """Return None: another document may be among the results."""
        return None

    def stratum(self, policy: PolicyRecord, strata: StrataRecord, stratum: StratumRecord) -> list[Certificate] | None:
        """Return None, as for all queries."""
        return None

    def answered(self, record: AbstentionRecord) -> ErrorLimit | None:
        """Return the limit of before, if scores can only fall."""
        return record.answered_unanswerable if self.best_scores_fall else None

    def refused(self, record: AbstentionRecord) -> ErrorLimit | None:
        """Return None: more queries may be refused."""
        return None

    def refusal(self, record: RefusalRecord) -> RefusalRecord | None:
        """Return the counts of before, if scores can only fall."""
        return record if self.best_scores_fall else None

    def lost(self, record: RefusalRecord) -> Interval | None:
        """Return None: more right answers may be refused."""
        return None


def kept_promises(before: Manifest, strata: StrataRecord | None, *, first: bool, last: bool) -> dict[str, Any]:
    """Return the fields of a manifest without the promises that a removal may break.

    Args:
        before: Manifest of the release with all documents.
        strata: Its strata that have documents left.
        first: Whether scores of the first stage, or of the only one, can only fall.
        last: Whether those of the last stage can.
    """
    records, withdrawn = ask(StatedRecords.of(before, strata), RemovalEvidence(last))
    fields: dict[str, Any] = dict(vars(records))
    if (second := before.second_stage) is not None:
        of_first, more = ask(StatedRecords.of(second.first), RemovalEvidence(first), stage=FIRST_STAGE)
        withdrawn += more
        update = {"policy": of_first.policy, "abstention": of_first.abstention, "refusal": of_first.refusal}
        fields["second_stage"] = second.model_copy(update={"first": second.first.model_copy(update=update)})
    # The summary of before states what is withdrawn.
    return fields | inherited_state(before, withdrawn) | ({"summary": None} if withdrawn else {})
