"""A recalibration as it is asked for, and what came of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taugate.calibration.comparison.decision import PromotionDecision
from taugate.calibration.comparison.rule import QUANTITIES, PromotionRule
from taugate.calibration.encoding.changes import CorpusChanges, CorpusDigests
from taugate.calibration.engines.stored import documents_in
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.progress import Stopwatch
from taugate.calibration.recalibration.trial import TrialResult, TrialSettings
from taugate.calibration.risk.paired import paired_losses
from taugate.calibration.settings.rules import CONFIDENCE
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.layout import OUTCOMES
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.query_arrays import Outcomes
from taugate.retrieval.release.signature import TrustedKeys
from taugate.retrieval.release.verify import verify

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True)
class Recalibration:
    """What to recalibrate, and what has to hold before the new release is promoted.

    Attributes:
        data: Folder or URL with the newer corpus and its labelled queries; a folder where there are logs.
        releases: The releases directory.
        logs: Query logs of the service; their judgements are added to the data set first.
        rule: Has to hold against the current release before the new one is promoted; None for no rule.
        wanted: Whether to promote at all.
        trial: On live traffic, before the promotion.
        key: Private key to sign the new release with, None for none.
        trusted: As of `promotion.promote`.
    """

    data: str
    releases: Path
    logs: tuple[Path, ...] = ()
    rule: PromotionRule | None = None
    wanted: bool = True
    trial: TrialSettings = field(default_factory=TrialSettings)
    key: "Ed25519PrivateKey | None" = None
    trusted: TrustedKeys | None = None


@dataclass(frozen=True)
class Recalibrated:
    """A recalibration as it ended.

    Attributes:
        current: Id of the release that was current when it began.
        manifest: Of the new release, None where nothing had changed.
        traffic: Queries that got labels, their judgements, and the judgements left out by reason; None without logs.
        changes: Documents added, changed and removed.
        loss: Share of the queries that lose their answer to τ, with 95 % limits on each side.
        decision: By the rule, None without one.
        trial: On live traffic, None without one.
        promoted: Whether the new release is current.
        refusal: Why it is not, a sentence; None where it is, or was not meant to be.
        code: Exit code.
        resumed: Steps that an earlier run had done.
    """

    current: str
    manifest: Manifest | None = None
    traffic: dict[str, Any] | None = None
    changes: dict[str, int] | None = None
    loss: Interval | None = None
    decision: PromotionDecision | None = None
    trial: TrialResult | None = None
    promoted: bool = False
    refusal: str | None = None
    code: int = 0
    resumed: tuple[str, ...] = ()


def changed_documents(current: Path, new: Path, watch: Stopwatch) -> dict[str, int]:
    """Count the documents that a new release adds, changes and removes.

    Args:
        current: Folders of the releases.
        new: Folders of the releases.
        watch: Shows the progress of reading them from an engine.

    Raises:
        EngineUnavailable: , and ReleaseError where a release cannot be read.
    """
    counted = ("added", "changed", "removed")
    manifests = verify(current), verify(new)
    collections = [None if each.engine is None else each.engine.collection for each in manifests]
    if collections[0] is not None and collections[0] == collections[1]:
        return dict.fromkeys(counted, 0)
    old, later = (
        CorpusDigests.of(documents_in(folder, manifest, watch))
        for folder, manifest in zip((current, new), manifests, strict=True)
    )
    changes = CorpusChanges.between(old, later)
    return {kind: getattr(changes, kind) for kind in counted}


def loss_to_threshold(folder: Path, manifest: Manifest) -> Interval:
    """Return the share of the answerable queries that lose their answer to τ, each limit with 95 % confidence.

    The queries are those held out, where there are any. With few labels it is the estimate of labels and machine.

    Args:
        folder: Of the release.
        manifest: Of the same.

    Raises:
        ReleaseError: Where it does not hold what its queries got.
    """
    if manifest.labels is not None:
        return manifest.labels.both.loss
    outcomes = Outcomes.load(folder / OUTCOMES, manifest.policy.k)
    found = QUANTITIES["accuracy@K"](outcomes, manifest.policy.k), QUANTITIES["accuracy"](outcomes, manifest.policy.k)
    losses = paired_losses(found[0].values - found[1].values, SamplingUnits.from_labels(found[0].labels))
    lower = max(0.0, losses.lower_limit(CONFIDENCE))
    return Interval(mean=losses.mean, lower=lower, upper=losses.upper_limit(CONFIDENCE))
