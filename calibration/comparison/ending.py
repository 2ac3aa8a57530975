"""How a calibration ends whose release is written: promoted, or why not, and the exit code that says so."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from taugate.calibration.abstention.words import remedy as refusals_remedy
from taugate.calibration.settings.rule import Rule
from taugate.errors import NotPromoted
from taugate.retrieval.release.manifest import Manifest

if TYPE_CHECKING:  # what compares needs the extra `calibration`, and every command knows these words
    from taugate.calibration.comparison.decision import Decision

NO_CUT, NOT_PROMOTED = 3, 4  # exit codes: no safe threshold; there is one, and something else is against it


@dataclass(frozen=True)
class Ending:
    """code: the exit code; said: why the release is not promoted, and what to do; reason: the same in a word or two.

    decision: where a promotion rule was asked, which says the rest.
    """

    code: int = 0
    said: str | None = None
    reason: str | None = None
    decision: "Decision | None" = None

    @classmethod
    def refused(cls, error: NotPromoted) -> Self:
        """By the rules of `registry/promotion.py`."""
        return cls(NOT_PROMOTED, f"{error}. The release is written, and is not promoted.", error.rule)


def unfit(manifest: Manifest, rule: Rule) -> Ending | None:
    """Why a release is not offered for promotion, whatever is current; None where it is. rule: what was asked for."""
    record = manifest.abstention
    unlimited = None if record is None or record.certified else refusals_remedy(record, manifest.data)
    if manifest.policy.kind == "none":
        from taugate.calibration.risk.cheapest import remedy  # needs the extra `calibration`

        ways = remedy(manifest.data.answerable, manifest.bootstrap.holdout, rule, manifest.policy.certificates)
        refusals = "" if unlimited is None else f" Of refusals: {unlimited}"
        said = f"{manifest.policy.guarantee} {ways}{refusals} The release keeps every result and is not promoted."
        return Ending(NO_CUT, said, "no cut")
    if unlimited is not None:
        return Ending(NOT_PROMOTED, f"{unlimited} The release is written, and is not promoted.", "abstention")
    return None
