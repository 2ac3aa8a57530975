"""One recalibration, from newer data to a release in service; `_Run.result` shows the steps in order."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from taugate.calibration.comparison.publish import Published, publish, unfit
from taugate.calibration.job.calibration import calibrate
from taugate.calibration.progress import Job
from taugate.calibration.recalibration.request import (
    Recalibrated,
    RecalibrationRequest,
    changed_documents,
    loss_to_threshold,
    no_longer_promised,
)
from taugate.calibration.recalibration.settings import inherited_encoder, inherited_settings, with_traffic_labels
from taugate.calibration.recalibration.state import RecalibrationState
from taugate.calibration.recalibration.trial import TrialResult, ask_to_reload, try_release
from taugate.errors import InputError, ReleaseError
from taugate.ingestion.dataset.corpus import CORPUS
from taugate.ingestion.dataset.judgements import qrels_of, splits_in
from taugate.ingestion.dataset.lines import stored_file
from taugate.ingestion.dataset.location import is_url, local_folder
from taugate.ingestion.dataset.people import digest_of_splits
from taugate.ingestion.dataset.queries import QUERIES
from taugate.ingestion.labels.traffic import NothingLearnedError, learn_from_traffic
from taugate.registry import promotion
from taugate.registry.catalog import find, parent_of, pointed_id, release_ids
from taugate.retrieval.release.layout import SHADOW
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.verify import verify_searchable
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
        self.manifest = verify_searchable(current, request.promotion.trusted)
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
        request.promotion.check(request.releases, self.settings.k)
        calibrated, calibrated_before = self._calibrate(digests)
        new = verify_searchable(request.releases / calibrated["release"])
        loss = loss_to_threshold(request.releases / new.release_id, new)
        published, trial, tried_before = self._publish(new)
        resumed = ("traffic",) * learned_before + ("calibrate",) * calibrated_before + ("shadow",) * tried_before
        changes = calibrated["changes"]
        withdrawn = no_longer_promised(self.manifest, new)
        result = Recalibrated(self.current.name, new, traffic, changes, loss, published, trial, resumed, withdrawn)
        return _finish(request, self.state, result) if published.promoted else result

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
        calibrated = {"release": name, "changes": changed_documents(self.current, request.releases / name, self.job)}
        self.state.record("calibrate", inputs, calibrated)
        return calibrated, resumed

    def _written(self, digests: dict[str, str]) -> str | None:
        """Return the id of the newest release with the same data and settings; None if there is none."""
        releases, encoder = self.request.releases, self.manifest.scorer.sha256
        for name in reversed(release_ids(releases)):
            if parent_of(releases, name) != self.current.name:
                continue
            try:
                manifest = verify_searchable(releases / name)
                settings = inherited_settings(manifest)
            except (ReleaseError, InputError):  # a damaged release, or one calibrated with --tau
                continue
            same = (manifest.data.sha256, manifest.taugate_version, manifest.scorer.sha256, settings)
            calibrated = manifest.update is None and manifest.erasure is None
            if calibrated and same == (digests, version("taugate"), encoder, self.settings):
                return name
        return None

    def _publish(self, new: Manifest) -> tuple[Published, TrialResult | None, bool]:
        """Promote the release if nothing is against it and the services that try it can answer with it.

        Returns how that ended, the trial's result if there was one, and whether an earlier run finished the trial.
        """
        request, trial, name = self.request, self.request.trial, new.release_id
        inputs = sha256_json([name, trial.urls, trial.queries])
        done = self.state.done("shadow", inputs)
        outcome = None if done is None else TrialResult(**done)

        def objection() -> str | None:
            nonlocal outcome
            if outcome is not None:
                return None
            with self.job.stage("shadow"):
                outcome = try_release(request.releases, name, trial, request.promotion.trusted, self.job)
            if outcome.objection is None:  # otherwise the next run repeats the trial
                self.state.record("shadow", inputs, asdict(outcome))
            return outcome.objection

        against = unfit(new, self.settings.rule)
        try:
            tried = objection if trial.urls else None
            published = publish(
                request.releases / name, request.promotion, against, trial=tried, report=self.job.report
            )
        finally:  # also after Ctrl-C: services should not continue an abandoned trial
            if trial.urls:
                _end_trial(request.releases, name)
        return published, outcome, done is not None


def _was_promoted(state: RecalibrationState, current: str) -> bool:
    calibrated = state.done("calibrate")
    return calibrated is not None and state.began_from != current and calibrated["release"] == current


def _remembered(request: RecalibrationRequest, state: RecalibrationState, current: Path) -> Recalibrated:
    """Return the result of an earlier run that was killed just after promoting its release."""
    calibrated, tried, learned = state.done("calibrate") or {}, state.done("shadow"), state.done("traffic")
    manifest = verify_searchable(current, request.promotion.trusted)
    return Recalibrated(
        str(state.began_from),
        manifest,
        learned,
        calibrated["changes"],
        loss_to_threshold(current, manifest),
        Published(promoted=True),
        None if tried is None else TrialResult(**tried),
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
    manifest = verify_searchable(release)
    splits = (manifest.data.split,) if manifest.labels is None else manifest.labels.splits
    return _digests(data, splits) == manifest.data.sha256


def _digests(data: str, splits: Sequence[str]) -> dict[str, str]:
    """Digest the files of a data set; a missing file, which the calibration will report, has the digest ""."""
    with local_folder(data, *splits) as folder:
        names = (CORPUS, QUERIES, *map(qrels_of, splits))
        paths = [path for path in (stored_file(folder / name) for name in names) if path.is_file()]
        corpus, queries, *qrels = [*map(sha256_file, paths), *[""] * (len(names) - len(paths))]
    return {"corpus": corpus, "queries": queries, "qrels": digest_of_splits(qrels)}


def _one_at_a_time(releases: Path) -> AbstractContextManager[None]:
    def busy(holder: str) -> ReleaseError:
        return ReleaseError(f"{releases}: {holder} is already recalibrating there; wait until it has finished")

    return exclusive_lock(releases / LOCK, 0, busy, temporary=True)
