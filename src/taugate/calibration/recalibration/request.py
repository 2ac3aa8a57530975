"""The request for a recalibration, its settings from the current release, its progress in a file, and its result."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from taugate.calibration.acceptance.better_lists import PROVISIONAL_WEIGHT
from taugate.calibration.comparison.publish import Promotion, Published
from taugate.calibration.comparison.rule import QUANTITIES
from taugate.calibration.encoding.cache import CorpusChanges, CorpusDigests
from taugate.calibration.encoding.encoder_options import InputOptions
from taugate.calibration.encoding.source import RequestedEncoder
from taugate.calibration.engines import documents_in
from taugate.calibration.progress import Job
from taugate.calibration.recalibration.trial import TrialResult, TrialSettings
from taugate.calibration.settings import (
    CalibrationSettings,
    CandidateSettings,
    IndexChoice,
    LexicalChoice,
    PrecisionChoice,
    ProjectionChoice,
    UpdateSettings,
    kept_rule,
    requested_rule,
)
from taugate.calibration.update.job import CheckRecord
from taugate.data.judgements import GENERATED, HUMAN, TRAFFIC
from taugate.errors import InputError
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.losses import paired_losses
from taugate.evidence.rules import CONFIDENCE, AbstentionRule, GateSettings, ThresholdRule, requested_margin
from taugate.release.evidence import Interval, Record
from taugate.release.layout import OUTCOMES
from taugate.release.manifest import Manifest
from taugate.release.names import METHODS, Kind
from taugate.release.promises import promises, stated
from taugate.release.queries import Outcomes
from taugate.release.search_records import GateRecord
from taugate.release.verify import verify_searchable
from taugate.retrieval.encoder.loading import VECTORS
from taugate.retrieval.engines.engine import IN_PROCESS
from taugate.storage.files import atomic_write, read_bounded


def inherited_settings(manifest: Manifest) -> CalibrationSettings:
    """Return the settings that a release was calibrated with, to calibrate a newer data set in the same way.

    Candidates of the gate are requested again, accepted or not. A policy that `auto` chose is chosen again. The engine
    is of the same kind.
    """
    before = () if manifest.labels is None else manifest.labels.splits
    return CalibrationSettings(
        split=manifest.data.split,
        relevant_from=manifest.data.relevant_from,
        drawn=(manifest.evidence and manifest.evidence.drawn) or "auto",
        k=manifest.policy.k,
        **manifest.bootstrap.model_dump(),
        rule=_rule(manifest),
        abstention=_abstention(manifest),
        refuse="auto" if manifest.refusal is not None and manifest.refusal.is_default else "off",
        candidates=_candidates(manifest),
        labels=(HUMAN, *before[1:]) if before else (),
        engine=IN_PROCESS if manifest.engine is None else manifest.engine.kind,
        accept_vectors=bool(manifest.accepts_vectors),
    )


def no_rule(manifest: Manifest) -> str | None:
    """Return why a new threshold cannot be chosen as that of the release was; None if it can."""
    method = METHODS[manifest.policy.method]
    if method.certifies or method.of_papers:
        return None
    return (
        f"{manifest.release_id}: its threshold was given with --tau, so there is no rule to choose a new one; run "
        "taugate calibrate once without --tau, and promote its release"
    )


def with_traffic_labels(settings: CalibrationSettings, splits: Collection[str]) -> CalibrationSettings:
    """Return the settings with judged traffic added to the release's split, as with --labels human,traffic.

    The split `human` replaces `generated`, because generated queries are not queries that people ask.
    """
    if TRAFFIC in settings.labelled_splits:
        return settings
    split = settings.split
    if split == GENERATED:
        if HUMAN not in splits:
            raise InputError(
                "users judge only results that the search shows them, so traffic alone cannot reveal what it misses; "
                "judge some queries with taugate judge"
            )
        split = HUMAN
    return replace(settings, split=split, labels=(HUMAN, TRAFFIC), holdout=0.0, relevant_from=None)


def inherited_encoder(folder: Path, manifest: Manifest) -> RequestedEncoder:
    """Return the float32 query encoder of the release in `folder`, or own vectors if it has no encoder."""
    if not manifest.reads_texts:
        return RequestedEncoder(VECTORS, new=True, input_options=InputOptions(similarity=manifest.encoder.similarity))
    return RequestedEncoder(str(folder / [*manifest.query_encoders][-1]), new=True)


def _rule(manifest: Manifest) -> ThresholdRule:
    policy, method = manifest.policy, METHODS[manifest.policy.method]
    if method.certifies:
        return requested_rule(policy, None if manifest.strata is None else manifest.strata.field)
    if method.of_papers:
        return ThresholdRule.from_options(metric=policy.metric)
    return kept_rule(policy)


def _abstention(manifest: Manifest) -> AbstentionRule | None:
    limits = None if manifest.refusal is None else manifest.refusal.limits
    if limits is None or limits.answered.asked is None:
        return None
    return AbstentionRule(limits.answered.asked, limits.refused.asked, limits.confidence)


def _candidates(manifest: Manifest) -> CandidateSettings:
    """Return the candidates that were requested; several of one kind mean `auto`."""
    judged: dict[str, list[GateRecord]] = defaultdict(list)
    for record in manifest.gate:
        judged[record.kind].append(record)
    retention: float | None = None
    projection: ProjectionChoice = "none"
    if judged["projection"]:
        projection = "auto" if len(judged["projection"]) > 1 else "query-pca"
    if projection == "query-pca":  # the candidate's name is "query-pca, retention 0.9"
        retention = float(judged["projection"][0].candidate.rpartition(" ")[2])
    precision: PrecisionChoice = manifest.answering.precision
    skipped = [candidate.kind for candidate in manifest.skipped or ()]
    tried = len(judged["precision"]) + skipped.count("precision")
    if tried > 1 or (tried and precision == "float32"):
        precision = "auto"
    index: IndexChoice = manifest.index.kind if manifest.engine is None else "flat"
    if judged["index"]:  # the name is "hnsw, breadth 64", or the kind alone
        name = judged["index"][0].candidate.partition(",")[0]
        index = (
            "auto"
            if len(judged["index"]) + skipped.count("index") > 1
            else next(kind for kind in get_args(Kind) if kind == name)
        )
    return CandidateSettings(
        projection=projection,
        retention=retention,
        precision=precision,
        index=index,
        lexical=_lexical(manifest, len(judged["lexical"])),
        rerank=_rerank(manifest),
        accept=() if manifest.projection is None or manifest.projection.accepted is None else ("projection",),
        rerank_candidates=20 if manifest.second_stage is None else manifest.second_stage.candidates,
        gate=_gate(manifest.gate),
    )


def _lexical(manifest: Manifest, judged: int) -> LexicalChoice:
    """Return how the lexical weight was chosen, given how many weights the gate judged.

    A release from before scores had a lexical part keeps its score, which clients may compare with numbers of theirs.
    """
    weight = None if manifest.lexical is None else manifest.lexical.weight
    if judged > 1 or (not judged and weight == PROVISIONAL_WEIGHT):
        return "auto"
    return "off" if weight is None else weight


def _rerank(manifest: Manifest) -> str:
    """Return the second stage to try again, which the gate then has to accept."""
    record = manifest.second_stage
    if record is None:
        return "off"
    if record.kind != "endpoint":
        return "auto"
    return "auto:endpoint" if record.model is None else f"auto:endpoint:{record.model}"


def _gate(records: Sequence[GateRecord]) -> GateSettings:
    """Return the gate's conditions as they were requested.

    The error was divided among the kinds of cheaper candidates; the lexical share and a second stage are judged at the
    whole error.
    """
    cheaper = [record for record in records if record.kind not in {"lexical", "rerank"}]
    judged = cheaper or records
    if not judged:
        return GateSettings()
    kinds = len({record.kind for record in judged})
    return GateSettings(requested_margin(judged), round(1 - (1 - judged[0].confidence) * kinds, 12))


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
