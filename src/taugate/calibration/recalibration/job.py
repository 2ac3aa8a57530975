"""One recalibration, from newer data to a release in service; `_Run.result` shows the steps in order."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from taugate.calibration.comparison.publish import Published, publish, unfit
from taugate.calibration.job.calibration import calibrate
from taugate.calibration.progress import Job
from taugate.calibration.recalibration.request import (
    SAME,
    Learned,
    Recalibrated,
    RecalibrationRequest,
    RecalibrationState,
    Verdict,
    Written,
    changed_documents,
    inherited_encoder,
    inherited_settings,
    loss_to_threshold,
    no_longer_promised,
    no_rule,
    with_traffic_labels,
)
from taugate.calibration.recalibration.trial import TrialResult, ask_to_reload, try_release
from taugate.calibration.update.job import update
from taugate.data.beir import digest_of_splits
from taugate.data.corpus import CORPUS
from taugate.data.judgements import GENERATED, qrels_of, splits_in
from taugate.data.lines import stored_file
from taugate.data.location import is_url, local_folder
from taugate.data.queries import QUERIES
from taugate.data.traffic import NothingLearnedError, learn_from_traffic
from taugate.data.vectors import vector_digests
from taugate.errors import EncoderError, EngineUnavailable, InputError, ReleaseError
from taugate.registry import promotion
from taugate.registry.catalog import find, parent_of, pointed_id, release_ids
from taugate.registry.promotion import SatisfiedRule
from taugate.release.layout import SHADOW
from taugate.release.manifest import Manifest
from taugate.release.verify import verify_searchable
from taugate.storage.files import sha256_file, sha256_json
from taugate.storage.folders import exclusive_lock

LOCK = ".recalibrating.lock"


def recalibrate(request: RecalibrationRequest, job: Job) -> Recalibrated:
    """Make a release of newer data if they need one, and promote the result if all checks pass.

    Unchanged data need nothing. If only documents changed, the current threshold is kept as long as it and every
    promise are shown to hold. Otherwise the data are calibrated with the settings of the current release.

    If the process is killed, the same call resumes: a file beside the releases lists the finished steps, and a step is
    repeated only if its inputs have changed. A directory has one recalibration at a time.

    Raises:
        InputError: If the data cannot be used, or the releases cannot be compared.
        EncoderError: If the encoder cannot be loaded.
        EngineUnavailable: If the engine does not respond.
        ReleaseError: If a release cannot be read, or another recalibration is running.
    """
    releases = request.releases
    find(releases)  # before the lock would create the directory
    with _one_at_a_time(releases):
        state, current, promoted = RecalibrationState(releases), find(releases), None
        if _was_promoted(state, current.name):  # and the process was killed before it could report that
            promoted = _finish(request, state, _remembered(request, state, current))
        state.begin(current.name)
        result = _Run(request, state, current, job).result()
        return promoted if promoted is not None and result.manifest is None else result


class _Run:
    """One run of a recalibration: a method per step, and the state that the steps share.

    Attributes:
        keeps_threshold: Whether a release keeps the current threshold although that is not shown to hold.
    """

    def __init__(self, request: RecalibrationRequest, state: RecalibrationState, current: Path, job: Job) -> None:
        self.request, self.state, self.current, self.job = request, state, current, job
        self.manifest = verify_searchable(current, request.promotion.trusted)
        inherited, requested = inherited_settings(self.manifest), request.check
        self.settings = replace(inherited, split=requested.split or inherited.split, embeddings=requested.embeddings)
        self.keeps_threshold = request.promotion.force or not request.promotion.requested
        self.resumed: list[str] = []

    def result(self) -> Recalibrated:
        """Run the unfinished steps, up to the first one that refuses the release."""
        request = self.request
        traffic = self._learn()
        if traffic is not None and traffic.queries:
            self._count_traffic()
        first, *more_splits = self.settings.labelled_splits or (str(self.settings.split),)
        optional = (GENERATED, *more_splits) if self.settings.labels else ()
        own_vectors = not self.manifest.reads_texts
        with local_folder(request.data, first, optional=optional, own_vectors=own_vectors) as folder:
            with self.job.stage("read"):
                digests = _digests(folder, (first, *more_splits)) | (vector_digests(folder) if own_vectors else {})
            written = self._write(folder, digests)
        if written.release == self.current.name:
            self.state.finish()
            return Recalibrated(self.current.name, written, traffic=traffic)
        path = request.releases / written.release
        new = verify_searchable(path)
        published, trial = self._publish(new, written)
        loss, withdrawn = loss_to_threshold(path, new), no_longer_promised(self.manifest, new)
        name = self.current.name
        result = Recalibrated(name, written, new, traffic, loss, published, trial, self.resumed, withdrawn)
        return _finish(request, self.state, result) if published.promoted else result

    def _learn(self) -> Learned | None:
        """Add judged traffic to the data set, unless an earlier run did; None without logs."""
        request = self.request
        if not request.logs:
            return None
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
        if (done := self.state.done(Learned, inputs)) is not None:
            self.resumed.append("traffic")
            return done
        learned = Learned(0, 0, {})
        try:
            with self.job.stage("traffic"):
                traffic = learn_from_traffic(request.logs, Path(request.data), collection=self.manifest.data.name)
            learned = Learned(traffic.queries, traffic.judgements, {**traffic.left_out})
        except NothingLearnedError as error:
            self.job.report(f"warning: {error}")
        self.state.record(inputs, learned)
        return learned

    def _count_traffic(self) -> None:
        """Add judged traffic to the labelled splits, if the settings of the release allow that."""
        try:
            self.settings = with_traffic_labels(self.settings, splits_in(Path(self.request.data)))
        except InputError as error:
            self.job.report(f"warning: judged traffic was added to the data set, but is not used: {error}")

    def _write(self, folder: Path, digests: dict[str, str]) -> Written:
        """Write the release that the data need, unless an earlier run did, or they need none."""
        request, verdict = self.request, Verdict.of(self.manifest, digests)
        if verdict.path == "nothing":
            return Written(release=self.current.name, verdict=verdict)
        request.promotion.check(request.releases, self.settings.k)
        inputs = sha256_json([digests, repr(self.settings), repr(request.check)])
        if (written := self.state.done(Written, inputs)) is not None:
            final = self.keeps_threshold or not written.keeps_failed_threshold
            if final and written.release in release_ids(request.releases):
                self.job.report(f"{written.release} already exists: an earlier run wrote it for the same data")
                self.resumed.append("calibrate")
                return written
        written = (self._checked if verdict.path == "check" else self._calibrated)(folder, digests, verdict)
        if written.release != self.current.name:
            self.state.record(inputs, written)
        return written

    def _checked(self, folder: Path, digests: dict[str, str], verdict: Verdict) -> Written:
        """Keep the current threshold if it holds for the newer documents, or no new calibration certifies as much."""
        request = self.request
        checked = partial(update, folder, self.current, request.check, request.promotion, self.job)
        try:
            check = checked(keep=self.keeps_threshold)
        except EngineUnavailable:
            raise
        except (EncoderError, ReleaseError) as error:  # such as another model behind the endpoint of a reranker
            because = f"the documents changed, and the current threshold cannot be checked: {error}"
            return self._calibrated(folder, digests, Verdict(path="calibration", because=because))
        if check is None:
            return Written(release=self.current.name, verdict=SAME)
        verdict = Verdict(path="check", because=f"the documents changed, and {check.finding}")
        if not check.release:
            verdict, against = verdict.model_copy(update={"path": "calibration"}), no_rule(self.manifest)
            if against is None:
                written = self._calibrated(folder, digests, verdict)
                refused = unfit(verify_searchable(request.releases / written.release), self.settings.rule)
                if refused is None:
                    return written.model_copy(update={"check": check})
                against = refused.message
            because = f"{verdict.because}. A new calibration cannot certify it either: {against}"
            verdict, check = verdict.model_copy(update={"because": because}), checked(keep=True) or check
        return Written(release=check.release, verdict=verdict, changes=check.changes, check=check)

    def _calibrated(self, folder: Path, digests: dict[str, str], verdict: Verdict) -> Written:
        """Calibrate the data with the settings of the current release, unless a killed run did."""
        if (problem := no_rule(self.manifest)) is not None:
            raise InputError(problem)
        releases = self.request.releases
        name = self._written(digests)  # by a run that was killed before it recorded the step
        if name is None:
            encoder = inherited_encoder(self.current, self.manifest)
            name = calibrate(str(folder), releases, encoder, self.settings, self.job).release_id
        else:
            self.job.report(f"{name} already exists, with the same settings and on the same data")
            self.resumed.append("calibrate")
        changes = changed_documents(self.current, releases / name, self.job)
        return Written(release=name, verdict=verdict, changes=changes)

    def _written(self, digests: dict[str, str]) -> str | None:
        """Return the id of the newest release with the same data and settings; None if there is none."""
        releases, encoder = self.request.releases, self.manifest.scorer.sha256
        for name in reversed(release_ids(releases)):
            if parent_of(releases, name) != self.current.name:
                continue
            try:
                manifest = verify_searchable(releases / name)
            except ReleaseError:  # damaged
                continue
            settings = replace(inherited_settings(manifest), embeddings=self.settings.embeddings)
            same = (manifest.data.sha256, manifest.taugate_version, manifest.scorer.sha256, settings)
            calibrated = manifest.update is None and manifest.erasure is None
            if calibrated and same == (digests, version("taugate"), encoder, self.settings):
                return name
        return None

    def _publish(self, new: Manifest, written: Written) -> tuple[Published, TrialResult | None]:
        """Promote the release if nothing is against it and the services that try it can answer with it.

        Returns how that ended, and the trial's result if there was one.
        """
        request, trial, name = self.request, self.request.trial, new.release_id
        inputs = sha256_json([name, trial.urls, trial.queries])
        outcome = self.state.done(TrialResult, inputs)
        if outcome is not None:
            self.resumed.append("shadow")

        def objection() -> str | None:
            nonlocal outcome
            if outcome is not None:
                return None
            with self.job.stage("shadow"):
                outcome = try_release(request.releases, name, trial, request.promotion.trusted, self.job)
            if outcome.objection is None:  # otherwise the next run repeats the trial
                self.state.record(inputs, outcome)
            return outcome.objection

        against, satisfied = unfit(new, self.settings.rule), None
        if (check := written.check) is not None and new.update is not None:
            remedy = "; without --no-promote, a new calibration is tried" if written.keeps_failed_threshold else ""
            refused = Published.refused(f"{written.verdict.because}{remedy}")
            against = None if check.holds or request.promotion.force else refused
            satisfied = SatisfiedRule(check.rule, self.current.name) if check.holds else None
        try:
            tried = objection if trial.urls else None
            report = self.job.report
            published = publish(request.releases / name, request.promotion, against, satisfied, tried, report=report)
        finally:  # also after Ctrl-C: services should not continue an abandoned trial
            if trial.urls:
                _end_trial(request.releases, name)
        return published, outcome


def _was_promoted(state: RecalibrationState, current: str) -> bool:
    calibrated = state.done(Written)
    return calibrated is not None and state.began_from != current and calibrated.release == current


def _remembered(request: RecalibrationRequest, state: RecalibrationState, current: Path) -> Recalibrated:
    """Return the result of an earlier run that was killed just after promoting its release."""
    tried, learned, written = state.done(TrialResult), state.done(Learned), state.done(Written)
    if written is None:
        raise ValueError("no release has been written")
    manifest = verify_searchable(current, request.promotion.trusted)
    return Recalibrated(
        str(state.began_from),
        written,
        manifest,
        learned,
        loss_to_threshold(current, manifest),
        Published(promoted=True),
        tried,
        resumed=(*(["traffic"] if learned else []), "calibrate", *(["shadow"] if tried else []), "promote"),
    )


def _finish(request: RecalibrationRequest, state: RecalibrationState, result: Recalibrated) -> Recalibrated:
    """Have the services load the promoted release, and remove the record of finished steps."""
    if result.manifest is not None:
        _end_trial(request.releases, result.manifest.release_id)
    ask_to_reload(request.trial)
    state.finish()
    return result


def _end_trial(releases: Path, name: str) -> None:
    """Remove the pointer `shadow` if it still names the release that was tried."""
    if pointed_id(releases, SHADOW) == name:
        promotion.shadow(releases, None)


def _digests(folder: Path, splits: Sequence[str]) -> dict[str, str]:
    """Digest the files of a data set; a missing file, which reading it will report, has the digest ""."""
    names = (CORPUS, QUERIES, *map(qrels_of, splits))
    paths = [path for path in (stored_file(folder / name) for name in names) if path.is_file()]
    corpus, queries, *qrels = [*map(sha256_file, paths), *[""] * (len(names) - len(paths))]
    return {"corpus": corpus, "queries": queries, "qrels": digest_of_splits(qrels)}


def _one_at_a_time(releases: Path) -> AbstractContextManager[None]:
    def busy(holder: str) -> ReleaseError:
        return ReleaseError(f"{releases}: {holder} is already recalibrating there; wait until it has finished")

    return exclusive_lock(releases / LOCK, 0, busy, temporary=True)
