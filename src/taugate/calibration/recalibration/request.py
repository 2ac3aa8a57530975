"""The request for a recalibration, and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from taugate.calibration.comparison.publish import Promotion, Published
from taugate.calibration.comparison.rule import QUANTITIES
from taugate.calibration.encoding.changes import CorpusChanges, CorpusDigests
from taugate.calibration.engines.stored import documents_in
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.progress import Job
from taugate.calibration.recalibration.trial import TrialResult, TrialSettings
from taugate.calibration.risk.paired import paired_losses
from taugate.calibration.settings.rules import CONFIDENCE
from taugate.calibration.settings.update import UpdateSettings
from taugate.calibration.update.job import CheckRecord
from taugate.retrieval.release.evidence import Interval, Record
from taugate.retrieval.release.layout import OUTCOMES
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.promises.asking import promises, stated
from taugate.retrieval.release.query_arrays import Outcomes
from taugate.retrieval.release.verify import verify_searchable

_PATHS = {"nothing": "Nothing to do", "check": "Checked", "calibration": "New calibration"}


@dataclass(frozen=True)
class RecalibrationRequest:
    """What to recalibrate, and the conditions for promoting the new release.

    Attributes:
        data: Folder or URL with the newer corpus and its labelled queries; must be a folder if there are logs.
        releases: The releases directory.
        logs: Query logs of the service; their judgements are added to the data set first.
        promotion: The requested promotion.
        trial: The trial on live traffic before the promotion.
        check: Settings of the check that the current threshold still holds.
    """

    data: str
    releases: Path
    logs: tuple[Path, ...] = ()
    promotion: Promotion = field(default_factory=Promotion)
    trial: TrialSettings = field(default_factory=TrialSettings)
    check: UpdateSettings = field(default_factory=UpdateSettings)


@dataclass(frozen=True)
class Learned:
    """What users taught: queries that got labels, their judgements, and the judgements left out by reason."""

    queries: int
    judgements: int
    left_out: dict[str, int]


class Verdict(Record):
    """What newer data need, and why.

    Attributes:
        path: Nothing, the check of the current threshold, or a new calibration.
        because: Why, as a clause.
    """

    path: Literal["nothing", "check", "calibration"]
    because: str

    @staticmethod
    def of(manifest: Manifest, digests: Mapping[str, str]) -> "Verdict":
        """Decide by the digests of the data set's files; whether the check passes is known after it.

        Args:
            manifest: Manifest of the current release.
            digests: Digests of the newer files, as in the manifest.
        """
        record, policy = manifest.calibration, manifest.policy
        changed = {name for name, digest in manifest.data.sha256.items() if digests.get(name) != digest}
        if labels := [name for name in ("queries", "qrels") if name in changed]:
            return Verdict(path="calibration", because=f"the labels changed ({' and '.join(labels)})")
        if manifest.state == "inherited":
            because = "the current release does not keep its promises, or its threshold, for the documents that it has"
            return Verdict(path="calibration", because=because)
        if not changed and manifest.erasure is None:
            return SAME
        if changed and "corpus" not in changed:
            return Verdict(path="calibration", because="the vectors changed, and the documents did not")
        if policy.tau is None or (record is not None and record.chance_warning(policy.k)):
            because = "the documents changed, and the current release has no threshold that is better than chance"
            return Verdict(path="calibration", because=because)
        return Verdict(path="check", because="the documents changed, and the labels did not")

    @property
    def sentence(self) -> str:
        """The verdict as one sentence."""
        return f"{_PATHS[self.path]}: {self.because.removesuffix('.')}."


SAME = Verdict(path="nothing", because="the documents and labels are those of the current release")


class Written(Record):
    """The release that a recalibration wrote, or found written by an earlier run.

    Attributes:
        release: Its id; that of the current one if the data need nothing.
        verdict: What the data need.
        changes: Documents added, changed and removed; None if nothing had changed.
        check: Result of the check, None without one.
    """

    release: str
    verdict: Verdict
    changes: dict[str, int] | None = None
    check: CheckRecord | None = None

    @property
    def keeps_failed_threshold(self) -> bool:
        """Whether it has the current threshold, which is not shown to hold, and no new calibration was tried."""
        return self.verdict.path == "check" and self.check is not None and not self.check.holds


@dataclass(frozen=True)
class Recalibrated:
    """The result of a recalibration.

    Attributes:
        current: Id of the release that was current at the start.
        written: What the newer data needed, and the release that was written.
        manifest: Manifest of the new release, None if nothing had changed.
        traffic: What users taught; None without logs.
        loss: Share of the queries that lose their answer to τ, with one-sided 95 % limits.
        published: How publishing the new release ended.
        trial: Result of the trial, None without a trial.
        resumed: Steps that an earlier run had done.
        withdrawn: What the current release promises and the new one does not.
    """

    current: str
    written: Written
    manifest: Manifest | None = None
    traffic: Learned | None = None
    loss: Interval | None = None
    published: Published = field(default_factory=Published)
    trial: TrialResult | None = None
    resumed: Sequence[str] = ()
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
    manifests = verify_searchable(current), verify_searchable(new)
    collections = [None if manifest.engine is None else manifest.engine.collection for manifest in manifests]
    if collections[0] is not None and collections[0] == collections[1]:
        return dict.fromkeys(("added", "changed", "removed"), 0)
    old, later = (
        CorpusDigests.of(documents_in(folder, manifest, job))
        for folder, manifest in zip((current, new), manifests, strict=True)
    )
    return CorpusChanges.between(old, later).counts


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
    if new.update is not None:
        return [f"{record.promise}: {record.words} Not shown: {record.reason}." for record in new.withdrawn or ()]
    promised = {promise.name: promise.limit for promise in promises(stated(new, new.strata))}
    earlier = promises(stated(before, before.strata))
    return [promise.words for promise in earlier if promised.get(promise.name, 1.0) > promise.limit]
