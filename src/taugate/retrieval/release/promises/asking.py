"""Asks all promises of a release again, and withdraws those that do not hold, by name."""

from collections.abc import Iterator, Sequence

from taugate.retrieval.release.changed_documents import WithdrawnRecord
from taugate.retrieval.release.evidence import StrataRecord
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.promises.losses import LimitedLoss, LimitedStratumLoss
from taugate.retrieval.release.promises.promise import Evidence, Promise, StatedRecords
from taugate.retrieval.release.promises.refusals import AnsweredQuestions, LimitedError, LimitedLostAnswers
from taugate.retrieval.release.records import CalibrationRecord
from taugate.retrieval.release.second_stage import FirstStageRecord, SecondStageRecord

_KINDS = (LimitedLoss, LimitedStratumLoss, LimitedError, AnsweredQuestions, LimitedLostAnswers)
_FIRST_STAGE = "first stage: "  # before the names of its promises


def promises(records: StatedRecords) -> Iterator[Promise]:
    """Yield every promise of a release, or of its first stage."""
    for kind in _KINDS:
        yield from kind.of(records)


def stated(manifest: Manifest | FirstStageRecord, strata: StrataRecord | None = None) -> StatedRecords:
    """Take the records that promise from a manifest, or from a first stage."""
    return StatedRecords(manifest.policy, manifest.refusal, strata)


def ask_promises(
    promised: StatedRecords, evidence: Evidence, new: StatedRecords | None = None
) -> tuple[StatedRecords, list[WithdrawnRecord]]:
    """Ask every promise; returns the new records without the withdrawn ones, and why each of these is withdrawn.

    Args:
        promised: Records that promise.
        evidence: What measures the promises again.
        new: Records of the new release; None if they are the same.
    """
    records, withdrawn = new or promised, []
    for promise in promises(promised):
        if (record := promise.ask(evidence)) is not None:
            withdrawn.append(record)
            records = promise.withdraw(records)
    return records, withdrawn


def ask_first_stage(
    promised: SecondStageRecord, evidence: Evidence, new: SecondStageRecord
) -> tuple[SecondStageRecord, list[WithdrawnRecord]]:
    """Ask the promises of the first stage of two, which are in the record of the second; see `ask_promises`."""
    records, withdrawn = ask_promises(stated(promised.first), evidence, stated(new.first))
    update = {name: value for name, value in vars(records).items() if name in FirstStageRecord.model_fields}
    named = [record.model_copy(update={"promise": f"{_FIRST_STAGE}{record.promise}"}) for record in withdrawn]
    return new.model_copy(update={"first": new.first.model_copy(update=update)}), named


def all_withdrawn(parent: Manifest, withdrawn: Sequence[WithdrawnRecord]) -> list[WithdrawnRecord]:
    """Return what is withdrawn by this release or before, each promise once."""
    return [*{record.promise: record for record in (*(parent.withdrawn or ()), *withdrawn)}.values()]


def inherited_calibration(parent: Manifest) -> CalibrationRecord | None:
    """Return the evidence of a release, as that of one that has withdrawn promises."""
    return parent.calibration and parent.calibration.model_copy(update={"state": "inherited"})
