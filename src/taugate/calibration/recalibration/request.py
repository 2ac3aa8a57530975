"""The request for a recalibration, its progress in a file, and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from taugate.calibration.comparison.decision import QUANTITIES
from taugate.calibration.comparison.publish import Promotion, Published
from taugate.calibration.encoding.cache import CorpusChanges, CorpusDigests
from taugate.calibration.engines import documents_in
from taugate.calibration.progress import Job
from taugate.calibration.recalibration.trial import TrialResult, TrialSettings
from taugate.calibration.settings import UpdateSettings
from taugate.calibration.update.job import CheckRecord
from taugate.errors import InputError
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.losses import paired_losses
from taugate.evidence.rules import CONFIDENCE
from taugate.release.evidence import Interval, Record
from taugate.release.layout import OUTCOMES
from taugate.release.manifest import Manifest
from taugate.release.promises import promises, stated
from taugate.release.queries import Outcomes
from taugate.release.verify import verify_searchable
from taugate.storage.files import atomic_write, read_bounded

_PATHS = {"nothing": "Nothing to do", "check": "Checked", "calibration": "New calibration"}

STATE = "recalibration.json"
Step = Literal["traffic", "calibrate", "shadow"]
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class RecalibrationRequest:
    """What to recalibrate, and the conditions for promoting the new release."""

    data: str  # folder or URL with the newer corpus and its labelled queries; must be a folder if there are logs
    releases: Path
    logs: tuple[Path, ...] = ()  # query logs of the service; their judgements are added to the data set first
    promotion: Promotion = field(default_factory=Promotion)
    trial: TrialSettings = field(default_factory=TrialSettings)
    # Settings of the check that the current threshold still holds
    check: UpdateSettings = field(default_factory=UpdateSettings)


@dataclass(frozen=True)
class Learned:
    """What users taught: queries that got labels, their judgements, and the judgements left out by reason."""

    queries: int
    judgements: int
    left_out: dict[str, int]


class Verdict(Record):
    """What newer data need, and why."""

    # Nothing, the check of the current threshold, or a new calibration
    path: Literal["nothing", "check", "calibration"]
    because: str

    @staticmethod
    def of(manifest: Manifest, digests: Mapping[str, str]) -> "Verdict":
        """Decide by the digests of the data set's files; whether the check passes is known after it."""
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
    """The release that a recalibration wrote, or found written by an earlier run."""

    release: str  # its id; that of the current one if the data need nothing
    verdict: Verdict
    changes: dict[str, int] | None = None  # documents added, changed and removed; None if nothing had changed
    check: CheckRecord | None = None

    @property
    def keeps_failed_threshold(self) -> bool:
        """Whether it has the current threshold, which is not shown to hold, and no new calibration was tried."""
        return self.verdict.path == "check" and self.check is not None and not self.check.holds


@dataclass(frozen=True)
class Recalibrated:
    """The result of a recalibration."""

    current: str  # id of the release that was current at the start
    written: Written  # what the newer data needed, and the release that was written
    manifest: Manifest | None = None  # manifest of the new release, None if nothing had changed
    traffic: Learned | None = None
    loss: Interval | None = None  # share of the queries that lose their answer to τ, with one-sided 95 % limits
    published: Published = field(default_factory=Published)
    trial: TrialResult | None = None
    resumed: Sequence[str] = ()
    withdrawn: Sequence[str] = ()  # what the current release promises and the new one does not


def changed_documents(current: Path, new: Path, job: Job) -> dict[str, int]:
    """Count the documents that a new release adds, changes and removes."""
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


_STEPS: dict[type, Step] = {Learned: "traffic", Written: "calibrate", TrialResult: "shadow"}  # in order
Outcome = TypeVar("Outcome", Learned, Written, TrialResult)


class _Done(BaseModel):
    """A finished step: a digest of its inputs, and its outcome."""

    model_config = ConfigDict(extra="forbid")

    inputs: str
    outcome: dict[str, JsonValue]


class _State(BaseModel):
    """Content of the file: the release that was current at the start, and the finished steps."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    current: str
    steps: dict[Step, _Done] = Field(default_factory=dict)


class RecalibrationState:
    """The steps of one recalibration. A step counts as done as long as its inputs are the same."""

    def __init__(self, releases: Path) -> None:
        """Read the state that an earlier run left in the releases directory."""
        self._path = releases / STATE
        self._state: _State | None = None
        try:
            self._state = _State.model_validate_json(read_bounded(self._path, _MAX_BYTES))
        except FileNotFoundError:
            pass
        except (OSError, ValidationError) as error:
            raise InputError(
                f"{self._path}: not the state of a recalibration; remove the file, and the next run starts over"
            ) from error

    @property
    def began_from(self) -> str | None:
        """Id of the release that was current at the start; None if there is no unfinished recalibration."""
        return None if self._state is None else self._state.current

    def begin(self, current: str) -> None:
        """Start over if the id of the current release has changed."""
        if self._state is None or self._state.current != current:
            self._state = _State(current=current)

    def done(self, step: type[Outcome], inputs: str | None = None) -> Outcome | None:
        """Return the outcome of a finished step; None if it is not finished or had other inputs.

        Args:
            inputs: Digest of the inputs it would have now, None for any.
        """
        done_step = None if self._state is None else self._state.steps.get(_STEPS[step])
        if done_step is None or inputs not in {None, done_step.inputs}:
            return None
        return TypeAdapter(step).validate_python(done_step.outcome)

    def record(self, inputs: str, outcome: Learned | Written | TrialResult) -> None:
        """Record that a step is done, and forget the steps after it."""
        if self._state is None:
            raise ValueError("no recalibration has begun")
        names, step = [*_STEPS.values()], _STEPS[type(outcome)]
        later = names[names.index(step) :]
        self._state.steps = {name: done for name, done in self._state.steps.items() if name not in later}
        done = TypeAdapter(type(outcome)).dump_python(outcome, mode="json")
        self._state.steps[step] = _Done(inputs=inputs, outcome=done)
        atomic_write(self._path, self._state.model_dump_json(indent=2).encode() + b"\n")

    def finish(self) -> None:
        """Remove the file, since nothing is left to resume; raises OSError if that fails."""
        self._state = None
        self._path.unlink(missing_ok=True)
