"""The request for a recalibration, and its result."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taugate.calibration.comparison.publish import Promotion, Published
from taugate.calibration.comparison.rule import QUANTITIES
from taugate.calibration.encoding.changes import CorpusChanges, CorpusDigests
from taugate.calibration.engines.stored import documents_in
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.progress import Job
from taugate.calibration.recalibration.trial import TrialResult, TrialSettings
from taugate.calibration.risk.paired import paired_losses
from taugate.calibration.settings.rules import CONFIDENCE
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.layout import OUTCOMES
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.promises.asking import promises, stated
from taugate.retrieval.release.query_arrays import Outcomes
from taugate.retrieval.release.verify import verify_searchable


@dataclass(frozen=True)
class RecalibrationRequest:
    """What to recalibrate, and the conditions for promoting the new release.

    Attributes:
        data: Folder or URL with the newer corpus and its labelled queries; must be a folder if there are logs.
        releases: The releases directory.
        logs: Query logs of the service; their judgements are added to the data set first.
        promotion: The requested promotion.
        trial: The trial on live traffic before the promotion.
    """

    data: str
    releases: Path
    logs: tuple[Path, ...] = ()
    promotion: Promotion = field(default_factory=Promotion)
    trial: TrialSettings = field(default_factory=TrialSettings)


@dataclass(frozen=True)
class Recalibrated:
    """The result of a recalibration.

    Attributes:
        current: Id of the release that was current at the start.
        manifest: Manifest of the new release, None if nothing had changed.
        traffic: Queries that got labels, their judgements, and the judgements left out by reason; None without logs.
        changes: Documents added, changed and removed.
        loss: Share of the queries that lose their answer to τ, with one-sided 95 % limits.
        published: How publishing the new release ended.
        trial: Result of the trial, None without a trial.
        resumed: Steps that an earlier run had done.
        withdrawn: What the current release promises and the new one does not.
    """

    current: str
    manifest: Manifest | None = None
    traffic: dict[str, Any] | None = None
    changes: dict[str, int] | None = None
    loss: Interval | None = None
    published: Published = field(default_factory=Published)
    trial: TrialResult | None = None
    resumed: tuple[str, ...] = ()
    withdrawn: Sequence[str] = ()


def changed_documents(current: Path, new: Path, job: Job) -> dict[str, int]:
    """Count the documents that a new release adds, changes and removes.

    Args:
        current: Folder of the current release.
        new: Folder of the new release.
        job: Shows the progress of reading from an engine.

    Raises:
        EngineUnavailable: If the engine does not respond.
        ReleaseError: If a release cannot be read.
    """
    counted = ("added", "changed", "removed")
    manifests = verify_searchable(current), verify_searchable(new)
    collections = [None if manifest.engine is None else manifest.engine.collection for manifest in manifests]
    if collections[0] is not None and collections[0] == collections[1]:
        return dict.fromkeys(counted, 0)
    old, later = (
        CorpusDigests.of(documents_in(folder, manifest, job))
        for folder, manifest in zip((current, new), manifests, strict=True)
    )
    changes = CorpusChanges.between(old, later)
    return {kind: getattr(changes, kind) for kind in counted}


def loss_to_threshold(folder: Path, manifest: Manifest) -> Interval:
    """Return the share of the answerable queries that lose their answer to τ, each limit with 95 % confidence.

    Measured on the held-out queries if there are any. With few labels it is the prediction-powered estimate.

    Args:
        folder: Folder of the release.
        manifest: Its manifest.

    Raises:
        ReleaseError: If the outcomes of its queries cannot be read.
    """
    if manifest.labels is not None:
        return manifest.labels.both.loss
    outcomes = Outcomes.load(folder / OUTCOMES, manifest.policy.k)
    samples = QUANTITIES["accuracy@K"](outcomes, manifest.policy.k), QUANTITIES["accuracy"](outcomes, manifest.policy.k)
    losses = paired_losses(samples[0].values - samples[1].values, SamplingUnits.from_clusters(samples[0].clusters))
    lower = max(0.0, losses.lower_limit(CONFIDENCE))
    return Interval(mean=losses.mean, lower=lower, upper=losses.upper_limit(CONFIDENCE))


def no_longer_promised(before: Manifest, new: Manifest) -> list[str]:
    """Return the promises of a release that its recalibration makes less strictly, or not at all."""
    promised = {promise.name: promise.limit for promise in promises(stated(new, new.strata))}
    earlier = promises(stated(before, before.strata))
    return [promise.words for promise in earlier if promised.get(promise.name, 1.0) > promise.limit]
