"""Which promises of a release hold without some of its documents, although no query is asked again.

Scores of the remaining documents do not change, so the best score of a query can only fall. That keeps a limit on
questions that get a result although no document answers them. What is lost is another matter: a document may move up
into the results that was not counted, and the score by which a query is refused may fall below the threshold.
"""

from dataclasses import dataclass

from taugate.retrieval.release.evidence import StrataRecord, StratumRecord
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.outcome_records import PolicyRecord
from taugate.retrieval.release.promises.asking import (
    all_withdrawn,
    ask_first_stage,
    ask_promises,
    inherited_calibration,
    stated,
)
from taugate.retrieval.release.refusal_records import ErrorLimit, RefusalRecord, RequestedLimits
from taugate.retrieval.release.summary import summary_of


@dataclass(frozen=True)
class RemovalEvidence:
    """What a removal cannot break; see `Evidence`.

    Attributes:
        best_scores_fall: Whether the score by which queries are refused can only fall.
        silence: See `Evidence`.
    """

    best_scores_fall: bool
    silence: str = "documents were removed, and no labelled query was asked"

    def losses(self, policy: PolicyRecord) -> None:
        """Return None: another document may be among the results."""

    def stratum(self, policy: PolicyRecord, strata: StrataRecord, stratum: StratumRecord) -> None:
        """Return None, as for all queries."""

    def errors(self, limits: RequestedLimits) -> tuple[ErrorLimit | None, None]:
        """Return the limit of answers if scores can only fall; more queries may be refused."""
        return limits.answered if self.best_scores_fall else None, None

    def refusal(self, record: RefusalRecord) -> RefusalRecord | None:
        """Return the counts of before, if scores can only fall; more right answers may be refused."""
        return record.model_copy(update={"lost": None}) if self.best_scores_fall else None


def kept_promises(before: Manifest, strata: StrataRecord | None, *, scores_fall: bool) -> Manifest:
    """Return the manifest without the promises that a removal may break.

    Args:
        before: Manifest of the release with all documents.
        strata: Its strata that have documents left.
        scores_fall: Whether the best score of the first stage, or of the only one, can only fall. That of a second
            stage may rise, because it scores other documents.
    """
    second = before.second_stage
    records, withdrawn = ask_promises(stated(before, strata), RemovalEvidence(scores_fall and second is None))
    if second is not None:
        second, of_first = ask_first_stage(second, RemovalEvidence(scores_fall), second)
        withdrawn += of_first
    changes = vars(records) | {"second_stage": second}
    if named := all_withdrawn(before, withdrawn):
        changes |= {"withdrawn": named, "calibration": inherited_calibration(before)}
    after = before.model_copy(update=changes)
    # The summary of before states what is withdrawn.
    return after.model_copy(update={"summary": summary_of(after)}) if withdrawn else after
