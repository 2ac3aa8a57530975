"""One recalibration, from newer data to a release in service: `recalibrate` reads top to bottom as it happens."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taugate.calibration.comparison.decision import PromotionDecision, check_current, decide
from taugate.calibration.comparison.rule import QUANTITIES, PromotionRule
from taugate.calibration.comparison.words import unfit
from taugate.calibration.job.job import calibrate
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.progress import Stopwatch
from taugate.calibration.recalibration.settings import inherited_encoder, inherited_settings
from taugate.calibration.recalibration.state import RecalibrationState
from taugate.calibration.recalibration.trial import TrialResult, TrialSettings, ask_to_reload, try_release
from taugate.calibration.risk.paired import paired_losses
from taugate.calibration.settings.rules import CONFIDENCE
from taugate.calibration.update.changes import CorpusChanges
from taugate.errors import InputError, NotPromoted, ReleaseError
from taugate.ingestion.dataset.beir import CORPUS, QUERIES
from taugate.ingestion.dataset.judgements import qrels_of
from taugate.ingestion.dataset.lines import stored_file
from taugate.ingestion.dataset.location import is_url, local_folder
from taugate.ingestion.dataset.people import digest_of_splits
from taugate.ingestion.labels.traffic import NothingLearnedError, learn_from_traffic
from taugate.registry import promotion
from taugate.registry.catalog import find, pointed_id, release_ids
from taugate.registry.promotion import SatisfiedRule
from taugate.registry.signing import sign
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.layout import CURRENT, OUTCOMES, SHADOW
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.query_arrays import Outcomes
from taugate.retrieval.release.signature import TrustedKeys
from taugate.retrieval.release.verify import verify
from taugate.storage.files import sha256_file, sha256_json
from taugate.storage.locks import exclusive_lock

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

LOCK = ".recalibrating.lock"


@dataclass(frozen=True)
class Recalibration:
    """What is asked for.

    data: a folder or a URL with the newer corpus and its labelled queries; releases: the releases directory; logs:
    query logs of the service, whose judgements are added to the data set first, which is a folder then; rule: has
    to hold against the current release before the new one is promoted, None for no further rule; wanted: whether to
    promote at all; trial: on live traffic, before the promotion; key: private key to sign the new release with, None
    for none; trusted: as of `promotion.promote`.
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
    """What came of a recalibration.

    current: id of the release that was current when it began; manifest: of the new release, None where nothing had
    changed; traffic: queries with labels, their judgements, and judgements left out by reason, None without logs;
    changes: documents added, changed and removed; loss: share of the queries that lose their answer to τ, with 95 %
    limits on each side; decision: of the rule, None without one; trial: on live traffic, None without one; promoted:
    whether the new release is current; refusal: why it is not, a sentence, None where it is or was not to be; code:
    exit code; resumed: steps that an earlier run had done.
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


NOT_PROMOTED = 4  # exit code


def recalibrate(asked: Recalibration, say: Callable[[str], None], watch: Stopwatch) -> Recalibrated:
    """Calibrate on newer data with the settings of the current release, and promote the result where nothing objects.

    Killed at any moment, the same call goes on: what is done is written beside the releases, and is done again only
    where its inputs have changed. One recalibration at a time in a directory.

    asked: see Recalibration; say: told one line of progress or warning at a time; watch: stopwatch whose stages grow.
    Raises InputError, EncoderError or ReleaseError for what keeps a release from being written or compared.
    """
    releases = asked.releases
    find(releases)  # before the lock makes a directory that nobody asked for
    with _one_at_a_time(releases):
        state = RecalibrationState(releases)
        current = find(releases)
        if _was_promoted(state, current.name):  # and killed before it could say so
            return _finish(asked, state, _remembered(asked, state, current))
        state.begin(current.name)
        return _Run(asked, state, current, say, watch).result()


class _Run:
    """One run of a recalibration, whose steps are called in their order; what it was asked for, and where it goes on.

    asked, state: see their classes; current: folder of the current release; say, watch: as of `recalibrate`.
    """

    def __init__(
        self,
        asked: Recalibration,
        state: RecalibrationState,
        current: Path,
        say: Callable[[str], None],
        watch: Stopwatch,
    ) -> None:
        self.asked, self.state, self.current, self.say, self.watch = asked, state, current, say, watch
        self.manifest = verify(current, asked.trusted)
        self.settings = inherited_settings(self.manifest, with_traffic=False)

    def result(self) -> Recalibrated:
        """Do what is left to do, up to the first step that objects."""
        asked = self.asked
        traffic, learned_before = self._learn()
        if traffic is not None and traffic["queries"]:
            self._count_traffic()
        with self.watch.stage("read"):
            digests = _digests(asked.data, self.settings.labelled_splits or (self.manifest.data.split,))
        if digests == self.manifest.data.sha256 and self.manifest.update is None:
            self.state.finish()
            return Recalibrated(self.current.name, traffic=traffic)
        if asked.rule is not None:
            check_current(asked.releases, asked.rule, self.settings.k)
        made, resumed = self._calibrate(digests)
        new = verify(asked.releases / made["release"])
        loss = loss_to_threshold(asked.releases / new.release_id, new)
        before = ("traffic",) * learned_before + ("calibrate",) * resumed
        result = Recalibrated(self.current.name, new, traffic, made["changes"], loss, resumed=before)
        steps: list[Callable[[Recalibrated, Manifest], Recalibrated]] = [self._fit, self._gate]
        if asked.wanted:
            steps += [self._try, self._promote]
        for step in steps:
            result = step(result, new)
            if result.refusal is not None:
                return result
        return _finish(asked, self.state, result) if result.promoted else result

    def _learn(self) -> tuple[dict[str, Any] | None, bool]:
        """Add judged traffic to the data set, unless an earlier run did; returns the outcome, and whether it did."""
        asked = self.asked
        if not asked.logs:
            return None, False
        if is_url(asked.data) or not os.access(asked.data, os.W_OK):
            raise InputError(
                f"{asked.data}: judged traffic cannot be added to it; give a folder that can be written to, or leave "
                "--log out"
            )
        for log in asked.logs:
            if not log.is_file():
                raise InputError(f"{log}: no such file; the service writes one if TAUGATE_QUERY_LOG names it")
        inputs = sha256_json(
            [sorted(map(sha256_file, asked.logs)), sha256_file(stored_file(Path(asked.data) / CORPUS))]
        )
        if (done := self.state.done("traffic", inputs)) is not None:
            return done, True
        learned = {"queries": 0, "judgements": 0, "left_out": {}}
        try:
            with self.watch.stage("traffic"):
                found = learn_from_traffic(asked.logs, Path(asked.data), collection=self.manifest.data.name)
            learned = {"queries": found.queries, "judgements": found.judgements, "left_out": {**found.left_out}}
        except NothingLearnedError as error:
            self.say(f"warning: {error}")
        self.state.record("traffic", inputs, learned)
        return learned, False

    def _count_traffic(self) -> None:
        """Have judged traffic count beside the release's own split, where its settings allow that."""
        try:
            self.settings = inherited_settings(self.manifest, with_traffic=True)
        except InputError as error:
            self.say(f"warning: judged traffic is added to the data set, and does not count: {error}")

    def _calibrate(self, digests: dict[str, str]) -> tuple[dict[str, Any], bool]:
        """Write the new release, or find the one that an earlier run wrote; returns the outcome, and whether it did."""
        asked, inputs = self.asked, sha256_json([digests, repr(self.settings)])
        made = self.state.done("calibrate", inputs)
        if made is not None and made["release"] in release_ids(asked.releases):
            self.say(f"{made['release']} is written already: an earlier run calibrated on the same data")
            return made, True
        encoder = inherited_encoder(self.current, self.manifest)
        new = calibrate(asked.data, asked.releases, encoder, self.settings, self.say, self.watch)
        folder = asked.releases / new.release_id
        if asked.key is not None:
            sign(folder, asked.key)
        changes = CorpusChanges.between(DocumentStore(self.current), DocumentStore(folder))
        counts = {name: getattr(changes, name) for name in ("added", "changed", "removed")}
        made = {"release": new.release_id, "changes": counts}
        self.state.record("calibrate", inputs, made)
        return made, False

    def _fit(self, result: Recalibrated, new: Manifest) -> Recalibrated:
        """Refuse a release that nothing could be promoted in the place of: one without a safe threshold."""
        ending = unfit(new, self.settings.rule)
        return result if ending is None else replace(result, refusal=ending.said, code=ending.code)

    def _gate(self, result: Recalibrated, new: Manifest) -> Recalibrated:
        """Compare the release with the current one by the rule that was asked for."""
        asked = self.asked
        if asked.rule is None:
            return result
        decision = decide(asked.releases, new.release_id, asked.rule, asked.trusted)
        result = replace(result, decision=decision)
        return result if decision.holds else _refused(result, f"the rule does not hold: {_failed(decision)}")

    def _try(self, result: Recalibrated, new: Manifest) -> Recalibrated:
        """Try the release on live traffic, unless no service is named, or an earlier run did so to the end."""
        asked, trial = self.asked, self.asked.trial
        if not trial.urls:
            return result
        inputs = sha256_json([new.release_id, trial.urls, trial.queries])
        done = self.state.done("shadow", inputs)
        if done is not None:
            return replace(result, trial=TrialResult(**done), resumed=(*result.resumed, "shadow"))
        with self.watch.stage("shadow"):
            found = try_release(asked.releases, new.release_id, trial, asked.trusted, self.say)
        result = replace(result, trial=found)
        if found.objection is not None:  # not recorded: the next run tries it again
            promotion.shadow(asked.releases, None)
            return _refused(result, found.objection)
        self.state.record("shadow", inputs, asdict(found))
        return result

    def _promote(self, result: Recalibrated, new: Manifest) -> Recalibrated:
        """Make the release the current one, where its own evidence allows it."""
        rule = None
        if result.decision is not None:
            rule = SatisfiedRule(str(result.decision.judged), result.decision.current)
        try:
            promotion.promote(self.asked.releases, new.release_id, self.asked.trusted, rule=rule)
        except NotPromoted as error:
            return _refused(result, str(error))
        return replace(result, promoted=True)


def loss_to_threshold(folder: Path, manifest: Manifest) -> Interval:
    """Return the share of the answerable queries that lose their answer to τ, each limit with 95 % confidence.

    The queries are those held out, where there are any. With few labels it is the estimate of labels and machine.

    folder: of the release; manifest: of the same. Raises ReleaseError where it does not hold what its queries got.
    """
    if manifest.labels is not None:
        return manifest.labels.both.loss
    outcomes = Outcomes.load(folder / OUTCOMES, manifest.policy.k)
    found = QUANTITIES["accuracy@K"](outcomes, manifest.policy.k), QUANTITIES["accuracy"](outcomes, manifest.policy.k)
    losses = paired_losses(found[0].values - found[1].values, SamplingUnits.from_labels(found[0].labels))
    lower = max(0.0, losses.lower_limit(CONFIDENCE))
    return Interval(mean=losses.mean, lower=lower, upper=losses.upper_limit(CONFIDENCE))


def _was_promoted(state: RecalibrationState, current: str) -> bool:
    made = state.done("calibrate")
    return made is not None and state.began_from != current and made["release"] == current


def _remembered(asked: Recalibration, state: RecalibrationState, current: Path) -> Recalibrated:
    """Return the result of an earlier run that was killed just after it had promoted its release."""
    made, tried, learned = state.done("calibrate") or {}, state.done("shadow"), state.done("traffic")
    manifest = verify(current, asked.trusted)
    return Recalibrated(
        str(state.began_from),
        manifest,
        learned,
        made["changes"],
        loss_to_threshold(current, manifest),
        trial=None if tried is None else TrialResult(**tried),
        promoted=True,
        resumed=(*(["traffic"] if learned else []), "calibrate", *(["shadow"] if tried else []), "promote"),
    )


def _finish(asked: Recalibration, state: RecalibrationState, result: Recalibrated) -> Recalibrated:
    """Have the services load the promoted release, and leave nothing to resume."""
    name = None if result.manifest is None else result.manifest.release_id
    if pointed_id(asked.releases, SHADOW) == name == pointed_id(asked.releases, CURRENT):
        promotion.shadow(asked.releases, None)
    for url in asked.trial.urls:
        ask_to_reload(url, asked.trial.key)
    state.finish()
    return result


def _refused(result: Recalibrated, why: str) -> Recalibrated:
    return replace(result, refusal=why, code=NOT_PROMOTED)


def _failed(decision: PromotionDecision) -> str:
    return ", ".join(f'"{each.clause}" ({each.finding})' for each in decision.verdicts if each.finding != "holds")


def _digests(data: str, splits: Sequence[str]) -> dict[str, str]:
    """Digest the files of a data set; a missing one, which calibrating says more of, has none."""
    with local_folder(data, *splits) as folder:
        names = (CORPUS, QUERIES, *map(qrels_of, splits))
        paths = [path for path in (stored_file(folder / name) for name in names) if path.is_file()]
        corpus, queries, *qrels = [*map(sha256_file, paths), *[""] * (len(names) - len(paths))]
    return {"corpus": corpus, "queries": queries, "qrels": digest_of_splits(qrels)}


@contextmanager
def _one_at_a_time(releases: Path) -> Iterator[None]:
    with exclusive_lock(releases / LOCK, 0) as holder:
        if holder is not None:
            raise ReleaseError(f"{releases}: {holder} is recalibrating there; wait until that is done")
        try:
            yield
        finally:
            (releases / LOCK).unlink(missing_ok=True)
