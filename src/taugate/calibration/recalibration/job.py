"""One recalibration, from newer data to a release in service; `_Run.result` shows the steps in order."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from taugate.calibration.comparison.decision import PromotionDecision, check_current, decide
from taugate.calibration.comparison.words import NOT_PROMOTED, unfit
from taugate.calibration.job.job import calibrate
from taugate.calibration.progress import Job
from taugate.calibration.recalibration.request import (
    Recalibrated,
    RecalibrationRequest,
    changed_documents,
    loss_to_threshold,
)
from taugate.calibration.recalibration.settings import inherited_encoder, inherited_settings, with_traffic_labels
from taugate.calibration.recalibration.state import RecalibrationState
from taugate.calibration.recalibration.trial import TrialResult, ask_to_reload, try_release
from taugate.errors import InputError, NotPromoted, ReleaseError
from taugate.ingestion.dataset.corpus import CORPUS
from taugate.ingestion.dataset.judgements import qrels_of, splits_in
from taugate.ingestion.dataset.lines import stored_file
from taugate.ingestion.dataset.location import is_url, local_folder
from taugate.ingestion.dataset.people import digest_of_splits
from taugate.ingestion.dataset.queries import QUERIES
from taugate.ingestion.labels.traffic import NothingLearnedError, learn_from_traffic
from taugate.registry import promotion
from taugate.registry.catalog import find, parent_of, pointed_id, release_ids
from taugate.registry.promotion import SatisfiedRule
from taugate.registry.signing import sign
from taugate.retrieval.release.layout import SHADOW
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.verify import verify
from taugate.storage.files import sha256_file, sha256_json
from taugate.storage.locks import exclusive_lock

LOCK = ".recalibrating.lock"


def recalibrate(request: RecalibrationRequest, job: Job) -> Recalibrated:
    """Calibrate on newer data with the settings of the current release, and promote the result if all checks pass.

    If the process is killed, the same call resumes: a file beside the releases lists the finished steps, and a step is
    repeated only if its inputs have changed. A directory has one recalibration at a time.

    Args:
        request: The data, and the conditions for a promotion.
        job: Reports progress and warnings, and times the stages.

    Raises:
        InputError: If the data cannot be used, or the releases cannot be compared.
        EncoderError: If the encoder cannot be loaded.
        EngineUnavailable: If the engine does not respond.
        ReleaseError: If a release cannot be read, or another recalibration is running.
    """
    releases = request.releases
    find(releases)  # before the lock would create the directory
    with _one_at_a_time(releases):
        state = RecalibrationState(releases)
        current = find(releases)
        if _was_promoted(state, current.name):  # and the process was killed before it could report that
            result = _finish(request, state, _remembered(request, state, current))
            if _is_of(current, request.data):
                return result
        state.begin(current.name)
        return _Run(request, state, current, job).result()


class _Run:
    """One run of a recalibration: a method per step, and the state that the steps share.

    Attributes:
        request: The data, and the conditions for a promotion.
        state: Finished steps.
        current: Folder of the current release.
        job: Reports progress and warnings, and times the stages.
    """

    def __init__(
        self,
        request: RecalibrationRequest,
        state: RecalibrationState,
        current: Path,
        job: Job,
    ) -> None:
        self.request, self.state, self.current, self.job = request, state, current, job
        self.manifest = verify(current, request.trusted)
        self.settings = inherited_settings(self.manifest)

    def result(self) -> Recalibrated:
        """Run the unfinished steps, up to the first one that refuses the release."""
        request = self.request
        traffic, learned_before = self._learn()
        if traffic is not None and traffic["queries"]:
            self._count_traffic()
        with self.job.stage("read"):
            digests = _digests(request.data, self.settings.labelled_splits or (self.manifest.data.split,))
        if digests == self.manifest.data.sha256 and self.manifest.update is None:
            self.state.finish()
            return Recalibrated(self.current.name, traffic=traffic)
        if request.rule is not None:
            check_current(request.releases, request.rule, self.settings.k)
        calibrated, resumed = self._calibrate(digests)
        new = verify(request.releases / calibrated["release"])
        loss = loss_to_threshold(request.releases / new.release_id, new)
        before = ("traffic",) * learned_before + ("calibrate",) * resumed
        result = Recalibrated(self.current.name, new, traffic, calibrated["changes"], loss, resumed=before)
        steps: list[Callable[[Recalibrated, Manifest], Recalibrated]] = [self._fit, self._gate]
        if request.promote:
            steps += [self._try, self._promote]
        for step in steps:
            result = step(result, new)
            if result.refusal is not None:
                return result
        return _finish(request, self.state, result) if result.promoted else result

    def _learn(self) -> tuple[dict[str, Any] | None, bool]:
        """Add judged traffic to the data set, unless an earlier run did.

        Returns the counts of queries and judgements, None without logs, and whether an earlier run had added them.
        """
        request = self.request
        if not request.logs:
            return None, False
        corpus = stored_file(Path(request.data) / CORPUS)
        if is_url(request.data) or (corpus.is_file() and not os.access(request.data, os.W_OK)):
            raise InputError(
                f"{request.data}: cannot add judged traffic to it; give a writable folder, or leave out --log"
            )
        if not corpus.is_file():
            raise InputError(f"{corpus}: no such file; give the folder of the data set")
        for log in request.logs:
            if not log.is_file():
                raise InputError(f"{log}: no such file; the service writes one if TAUGATE_QUERY_LOG names it")
        inputs = sha256_json([sorted(map(sha256_file, request.logs)), sha256_file(corpus)])
        if (done := self.state.done("traffic", inputs)) is not None:
            return done, True
        learned = {"queries": 0, "judgements": 0, "left_out": {}}
        try:
            with self.job.stage("traffic"):
                traffic = learn_from_traffic(request.logs, Path(request.data), collection=self.manifest.data.name)
            learned = {"queries": traffic.queries, "judgements": traffic.judgements, "left_out": {**traffic.left_out}}
        except NothingLearnedError as error:
            self.job.report(f"warning: {error}")
        self.state.record("traffic", inputs, learned)
        return learned, False

    def _count_traffic(self) -> None:
        """Add judged traffic to the labelled splits, if the settings of the release allow that."""
        try:
            self.settings = with_traffic_labels(self.settings, splits_in(Path(self.request.data)))
        except InputError as error:
            self.job.report(f"warning: judged traffic was added to the data set, but is not used: {error}")

    def _calibrate(self, digests: dict[str, str]) -> tuple[dict[str, Any], bool]:
        """Write the new release, unless an earlier run did.

        Args:
            digests: Digests of the data set's files.

        Returns:
            Id and changes of the release, and whether an earlier run had written it.
        """
        request, inputs = self.request, sha256_json([digests, repr(self.settings)])
        earlier = self.state.done("calibrate", inputs)
        if earlier is not None and earlier["release"] in release_ids(request.releases):
            self.job.report(f"{earlier['release']} already exists: an earlier run calibrated on the same data")
            return earlier, True
        name = self._written(digests)  # by a run that was killed before it recorded the step
        resumed = name is not None
        if name is None:
            encoder = inherited_encoder(self.current, self.manifest)
            name = calibrate(request.data, request.releases, encoder, self.settings, self.job).release_id
        else:
            self.job.report(f"{name} already exists, with the same settings and on the same data")
        if request.key is not None:
            sign(request.releases / name, request.key)
        calibrated = {"release": name, "changes": changed_documents(self.current, request.releases / name, self.job)}
        self.state.record("calibrate", inputs, calibrated)
        return calibrated, resumed

    def _written(self, digests: dict[str, str]) -> str | None:
        """Return the id of the newest release with the same data and settings; None if there is none."""
        releases, encoder = self.request.releases, promotion.float32_encoder(self.manifest)
        for name in reversed(release_ids(releases)):
            if parent_of(releases, name) != self.current.name:
                continue
            try:
                manifest = verify(releases / name)
                settings = inherited_settings(manifest)
            except (ReleaseError, InputError):  # a damaged release, or one calibrated with --tau
                continue
            same = (manifest.data.sha256, manifest.taugate_version, promotion.float32_encoder(manifest), settings)
            calibrated = manifest.update is None and manifest.erasure is None
            if calibrated and same == (digests, version("taugate"), encoder, self.settings):
                return name
        return None

    def _fit(self, result: Recalibrated, new: Manifest) -> Recalibrated:
        """Refuse a release that its own evidence rules out, before it is compared and tried."""
        ending = unfit(new, self.settings.rule)
        if ending is not None:
            return replace(result, refusal=ending.message, code=ending.code)
        if self.request.promote:
            try:
                promotion.check_evidence(self.request.releases, new)
            except NotPromoted as error:
                return _refused(result, str(error))
        return result

    def _gate(self, result: Recalibrated, new: Manifest) -> Recalibrated:
        """Compare the release with the current one by the requested rule."""
        request = self.request
        if request.rule is None:
            return result
        decision = decide(request.releases, new.release_id, request.rule, request.trusted)
        result = replace(result, decision=decision)
        return result if decision.holds else _refused(result, f"the promotion rule does not hold: {_failed(decision)}")

    def _try(self, result: Recalibrated, new: Manifest) -> Recalibrated:
        """Try the release on live traffic, unless no service is named or an earlier run finished the trial."""
        request, trial = self.request, self.request.trial
        if not trial.urls:
            return result
        inputs = sha256_json([new.release_id, trial.urls, trial.queries])
        done = self.state.done("shadow", inputs)
        if done is not None:
            return replace(result, trial=TrialResult(**done), resumed=(*result.resumed, "shadow"))
        try:
            with self.job.stage("shadow"):
                outcome = try_release(request.releases, new.release_id, trial, request.trusted, self.job)
        except BaseException:  # also Ctrl-C: services should not continue an abandoned trial
            _end_trial(request.releases, new.release_id)
            raise
        result = replace(result, trial=outcome)
        if outcome.objection is not None:  # not recorded, so the next run repeats the trial
            _end_trial(request.releases, new.release_id)
            return _refused(result, outcome.objection)
        self.state.record("shadow", inputs, asdict(outcome))
        return result

    def _promote(self, result: Recalibrated, new: Manifest) -> Recalibrated:
        """Promote the release, unless its own evidence is against it."""
        rule = None
        if result.decision is not None:
            rule = SatisfiedRule(str(result.decision.judged), result.decision.current)
        try:
            promotion.promote(self.request.releases, new.release_id, self.request.trusted, rule=rule)
        except ReleaseError as error:
            _end_trial(self.request.releases, new.release_id)
            if isinstance(error, NotPromoted):
                return _refused(result, str(error))
            raise
        return replace(result, promoted=True)


def _was_promoted(state: RecalibrationState, current: str) -> bool:
    calibrated = state.done("calibrate")
    return calibrated is not None and state.began_from != current and calibrated["release"] == current


def _remembered(request: RecalibrationRequest, state: RecalibrationState, current: Path) -> Recalibrated:
    """Return the result of an earlier run that was killed just after promoting its release."""
    calibrated, tried, learned = state.done("calibrate") or {}, state.done("shadow"), state.done("traffic")
    manifest = verify(current, request.trusted)
    return Recalibrated(
        str(state.began_from),
        manifest,
        learned,
        calibrated["changes"],
        loss_to_threshold(current, manifest),
        trial=None if tried is None else TrialResult(**tried),
        promoted=True,
        resumed=(*(["traffic"] if learned else []), "calibrate", *(["shadow"] if tried else []), "promote"),
    )


def _finish(request: RecalibrationRequest, state: RecalibrationState, result: Recalibrated) -> Recalibrated:
    """Have the services load the promoted release, and remove the record of finished steps."""
    if result.manifest is not None:
        _end_trial(request.releases, result.manifest.release_id)
    for url in request.trial.urls:
        ask_to_reload(url, request.trial.key)
    state.finish()
    return result


def _end_trial(releases: Path, name: str) -> None:
    """Remove the pointer `shadow` if it still names the release that was tried."""
    if pointed_id(releases, SHADOW) == name:
        promotion.shadow(releases, None)


def _is_of(release: Path, data: str) -> bool:
    """Return whether the release in the folder `release` was calibrated on the files at `data`."""
    manifest = verify(release)
    splits = (manifest.data.split,) if manifest.labels is None else manifest.labels.splits
    return _digests(data, splits) == manifest.data.sha256


def _refused(result: Recalibrated, reason: str) -> Recalibrated:
    return replace(result, refusal=reason, code=NOT_PROMOTED)


def _failed(decision: PromotionDecision) -> str:
    return ", ".join(
        f'"{verdict.clause}" ({verdict.finding})' for verdict in decision.verdicts if verdict.finding != "holds"
    )


def _digests(data: str, splits: Sequence[str]) -> dict[str, str]:
    """Digest the files of a data set; a missing file, which the calibration will report, has the digest ""."""
    with local_folder(data, *splits) as folder:
        names = (CORPUS, QUERIES, *map(qrels_of, splits))
        paths = [path for path in (stored_file(folder / name) for name in names) if path.is_file()]
        corpus, queries, *qrels = [*map(sha256_file, paths), *[""] * (len(names) - len(paths))]
    return {"corpus": corpus, "queries": queries, "qrels": digest_of_splits(qrels)}


@contextmanager
def _one_at_a_time(releases: Path) -> Iterator[None]:
    with exclusive_lock(releases / LOCK, 0) as holder:
        if holder is not None:
            raise ReleaseError(f"{releases}: {holder} is already recalibrating there; wait until it has finished")
        try:
            yield
        finally:
            (releases / LOCK).unlink(missing_ok=True)
