"""One recalibration, from newer data to a release in service: `recalibrate` reads top to bottom as it happens."""

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
from taugate.calibration.progress import Stopwatch
from taugate.calibration.recalibration.request import Recalibrated, Recalibration, changed_documents, loss_to_threshold
from taugate.calibration.recalibration.settings import counting_traffic, inherited_encoder, inherited_settings
from taugate.calibration.recalibration.state import RecalibrationState
from taugate.calibration.recalibration.trial import TrialResult, ask_to_reload, try_release
from taugate.errors import InputError, NotPromoted, ReleaseError
from taugate.ingestion.dataset.beir import CORPUS, QUERIES
from taugate.ingestion.dataset.judgements import qrels_of, splits_in
from taugate.ingestion.dataset.lines import stored_file
from taugate.ingestion.dataset.location import is_url, local_folder
from taugate.ingestion.dataset.people import digest_of_splits
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


def recalibrate(asked: Recalibration, say: Callable[[str], None], watch: Stopwatch) -> Recalibrated:
    """Calibrate on newer data with the settings of the current release, and promote the result if nothing objects.

    Killed at any moment, the same call goes on where it was: a file beside the releases says which steps are done, and
    a step is done again only if its inputs have changed. A directory has one recalibration at a time.

    Args:
        asked: See Recalibration.
        say: Told one line of progress or warning at a time.
        watch: Stopwatch whose stages grow.

    Raises:
        InputError: For what keeps a release from being written or compared.
        EncoderError: For what keeps a release from being written or compared.
        EngineUnavailable: For what keeps a release from being written or compared.
        ReleaseError: For what keeps a release from being written or compared.
    """
    releases = asked.releases
    find(releases)  # before the lock makes a directory that nobody asked for
    with _one_at_a_time(releases):
        state = RecalibrationState(releases)
        current = find(releases)
        if _was_promoted(state, current.name):  # and killed before it could say so
            left = _finish(asked, state, _remembered(asked, state, current))
            if _is_of(current, asked.data):
                return left
        state.begin(current.name)
        return _Run(asked, state, current, say, watch).result()


class _Run:
    """One run of a recalibration: a method for each step, and what the steps share.

    Attributes:
        asked: See their classes.
        state: See their classes.
        current: Folder of the current release.
        say: As of `recalibrate`.
        watch: As of `recalibrate`.
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
        self.settings = inherited_settings(self.manifest)

    def result(self) -> Recalibrated:
        """Do the steps that are left, up to the first one that objects."""
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
        """Add judged traffic to the data set, unless an earlier run did.

        Returns what was learned, None without logs, and whether an earlier run had learned it.
        """
        asked = self.asked
        if not asked.logs:
            return None, False
        corpus = stored_file(Path(asked.data) / CORPUS)
        if is_url(asked.data) or (corpus.is_file() and not os.access(asked.data, os.W_OK)):
            raise InputError(
                f"{asked.data}: judged traffic cannot be added to it; give a folder that can be written to, or leave "
                "--log out"
            )
        if not corpus.is_file():
            raise InputError(f"{corpus}: no such file; give the folder of the data set")
        for log in asked.logs:
            if not log.is_file():
                raise InputError(f"{log}: no such file; the service writes one if TAUGATE_QUERY_LOG names it")
        inputs = sha256_json([sorted(map(sha256_file, asked.logs)), sha256_file(corpus)])
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
            self.settings = counting_traffic(self.settings, splits_in(Path(self.asked.data)))
        except InputError as error:
            self.say(f"warning: judged traffic is in the data set now, but does not count: {error}")

    def _calibrate(self, digests: dict[str, str]) -> tuple[dict[str, Any], bool]:
        """Write the new release, unless an earlier run did.

        Args:
            digests: Of the data set.

        Returns:
            The release with what changed, and whether an earlier run had written it.
        """
        asked, inputs = self.asked, sha256_json([digests, repr(self.settings)])
        made = self.state.done("calibrate", inputs)
        if made is not None and made["release"] in release_ids(asked.releases):
            self.say(f"{made['release']} is written already: an earlier run calibrated on the same data")
            return made, True
        name = self._written(digests)  # by a run that was killed before it could record it
        written = name is not None
        if name is None:
            encoder = inherited_encoder(self.current, self.manifest)
            name = calibrate(asked.data, asked.releases, encoder, self.settings, self.say, self.watch).release_id
        else:
            self.say(f"{name} is written already, with the same settings and on the same data")
        if asked.key is not None:
            sign(asked.releases / name, asked.key)
        made = {"release": name, "changes": changed_documents(self.current, asked.releases / name, self.watch)}
        self.state.record("calibrate", inputs, made)
        return made, written

    def _written(self, digests: dict[str, str]) -> str | None:
        """Return the id of the newest release that this calibration would only write again; None without one."""
        releases, encoder = self.asked.releases, promotion.float32_encoder(self.manifest)
        for name in reversed(release_ids(releases)):
            if parent_of(releases, name) != self.current.name:
                continue
            try:
                found = verify(releases / name)
                settings = inherited_settings(found)
            except (ReleaseError, InputError):  # a damaged one, or one of --tau
                continue
            same = (found.data.sha256, found.taugate_version, promotion.float32_encoder(found), settings)
            calibrated = found.update is None and found.erasure is None
            if calibrated and same == (digests, version("taugate"), encoder, self.settings):
                return name
        return None

    def _fit(self, result: Recalibrated, new: Manifest) -> Recalibrated:
        """Refuse a release whose own evidence is against it, before it is compared and tried."""
        ending = unfit(new, self.settings.rule)
        if ending is not None:
            return replace(result, refusal=ending.said, code=ending.code)
        if self.asked.wanted:
            try:
                promotion.check_evidence(self.asked.releases, new)
            except NotPromoted as error:
                return _refused(result, str(error))
        return result

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
        try:
            with self.watch.stage("shadow"):
                found = try_release(asked.releases, new.release_id, trial, asked.trusted, self.say)
        except BaseException:  # also Ctrl-C: services should not go on with a trial that nobody waits for
            _end_trial(asked.releases, new.release_id)
            raise
        result = replace(result, trial=found)
        if found.objection is not None:  # not recorded: the next run tries it again
            _end_trial(asked.releases, new.release_id)
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
        except ReleaseError as error:
            _end_trial(self.asked.releases, new.release_id)
            if isinstance(error, NotPromoted):
                return _refused(result, str(error))
            raise
        return replace(result, promoted=True)


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
    if result.manifest is not None:
        _end_trial(asked.releases, result.manifest.release_id)
    for url in asked.trial.urls:
        ask_to_reload(url, asked.trial.key)
    state.finish()
    return result


def _end_trial(releases: Path, name: str) -> None:
    """Remove the pointer `shadow`, unless it names another release by now.

    Args:
        name: Id of the release that was tried.
    """
    if pointed_id(releases, SHADOW) == name:
        promotion.shadow(releases, None)


def _is_of(release: Path, data: str) -> bool:
    """Tell whether a release was calibrated on these files.

    Args:
        release: Its folder.
        data: Folder or URL.
    """
    manifest = verify(release)
    splits = (manifest.data.split,) if manifest.labels is None else manifest.labels.splits
    return _digests(data, splits) == manifest.data.sha256


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
