"""Asks all promises of a release again, and withdraws those that do not hold, by name."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.promises.losses import LimitedLoss, LimitedStratumLoss
from taugate.retrieval.release.promises.promise import Evidence, Promise, StatedRecords
from taugate.retrieval.release.promises.refusals import (
    LimitedAnswers,
    LimitedLostAnswers,
    LimitedRefusals,
    RefusedQuestions,
)
from taugate.retrieval.release.records import WithdrawnRecord

_KINDS: Sequence[Callable[[StatedRecords], Iterator[Promise]]] = (
    LimitedLoss.of,
    LimitedStratumLoss.of,
    LimitedAnswers.of,
    LimitedRefusals.of,
    RefusedQuestions.of,
    LimitedLostAnswers.of,
)
FIRST_STAGE = "first stage: "  # before the names of its promises


class Asked(NamedTuple):
    """The outcome of asking.

    Attributes:
        records: Records of the new release without the withdrawn promises.
        withdrawn: Why each of these is withdrawn.
    """

    records: StatedRecords
    withdrawn: list[WithdrawnRecord]


def ask(promised: StatedRecords, evidence: Evidence, new: StatedRecords | None = None, stage: str = "") -> Asked:
    """Ask every promise of a release, or of its first stage.

    Args:
        promised: Records that promise.
        evidence: What measures the promises again.
        new: Records of the new release; None if they are the same.
        stage: Before the name of each promise: FIRST_STAGE, or nothing.
    """
    records, withdrawn = new or promised, []
    for kind in _KINDS:
        for promise in kind(promised):
            if (record := promise.ask(evidence, stage)) is not None:
                withdrawn.append(record)
                records = promise.withdraw(records)
    return Asked(records, withdrawn)


def inherited_state(parent: Manifest, withdrawn: Sequence[WithdrawnRecord]) -> dict[str, Any]:
    """Return the manifest's fields that say what is withdrawn, by this release or before; empty if nothing is.

    Args:
        parent: The release whose thresholds are kept.
        withdrawn: What is withdrawn now.
    """
    named = {record.promise: record for record in (*(parent.withdrawn or ()), *withdrawn)}
    if not named:
        return {}
    state = parent.calibration and parent.calibration.model_copy(update={"state": "inherited"})
    return {"withdrawn": [*named.values()], "calibration": state}
