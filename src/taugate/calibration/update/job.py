"""One update, from a newer corpus to a release: `update` reads top to bottom in the order in which it happens."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taugate.calibration.encoding.changes import CorpusChanges, CorpusDigests
from taugate.calibration.encoding.encoder_fit import encoder_fit, encoder_fit_warnings
from taugate.calibration.engines.stored import JOB_ACCESS, documents_of
from taugate.calibration.gate.baseline import Admitted
from taugate.calibration.job.job import check_sizes
from taugate.calibration.job.release import ReleaseContents, golden_queries, manifest_facts, query_outcomes
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.metrics.measure import DrawnQueries
from taugate.calibration.progress import Stopwatch
from taugate.calibration.provisional.words import PROVISIONAL
from taugate.calibration.report.page import render
from taugate.calibration.settings.rules import CONFIDENCE, MAX_LOSS, ThresholdRule
from taugate.calibration.settings.settings import CalibrationSettings, CandidateSettings, GateSettings, asked_margin
from taugate.calibration.settings.update import UpdateSettings
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.study import study
from taugate.calibration.update.admission import admit_update, release_encoders
from taugate.calibration.update.check import ThresholdCheck, check_threshold
from taugate.calibration.update.vectors import ReleaseEncoders
from taugate.errors import EngineUnavailable, InputError
from taugate.ingestion.dataset.beir import Dataset, read_dataset
from taugate.ingestion.dataset.location import local_folder
from taugate.registry import writer
from taugate.registry.catalog import find
from taugate.registry.lock import calibration_lock, lock_for_reading
from taugate.registry.promotion import SatisfiedRule, promote
from taugate.registry.signing import sign
from taugate.retrieval.release.manifest import Manifest, UpdateRecord
from taugate.retrieval.release.reader import load
from taugate.retrieval.release.records import EncoderFitRecord
from taugate.retrieval.release.signature import TrustedKeys

# Kinds of candidate that the gate judges for each corpus anew; encoder and projection stay.
_JUDGED_AGAIN = frozenset({"index", "engine"})

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True)
class UpdatePromotion:
    """The promotion that is asked for, if τ still holds.

    Attributes:
        wanted: Whether the release is to become current.
        force: Promote it also where τ is not shown to hold, or where another rule of promotion is against it.
        key: Private key to sign the release with, None for none.
        trusted: Keys of which one must have signed the current release, and this one to be promoted; None asks for no
            signature.
    """

    wanted: bool = True
    force: bool = False
    key: "Ed25519PrivateKey | None" = None
    trusted: TrustedKeys | None = None


@dataclass(frozen=True)
class Updated:
    """The outcome of an update.

    Attributes:
        manifest: Of the new release, or of the current one where nothing changed.
        parent: Id of the release that was current.
        changes: Of the corpus.
        check: Whether τ still holds, None where nothing changed.
        promoted: Whether the new release became current.
    """

    manifest: Manifest
    parent: str
    changes: CorpusChanges
    check: ThresholdCheck | None
    promoted: bool


def update(
    data: str,
    releases: Path,
    settings: UpdateSettings,
    promotion: UpdatePromotion,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Updated:
    """Write a release of a newer corpus with the encoder and the threshold of the current release.

    It becomes current where τ is shown to hold. One calibration or update at a time in a directory.

    Args:
        data: A folder or a URL with the newer corpus and its labelled queries.
        releases: The directory of releases.
        settings: Of the check.
        promotion: What is asked for.
        say: Told one line of progress or warning at a time.
        watch: Stopwatch whose stages grow.

    Raises:
        InputError: Before anything is written; the last two or NotPromoted after it, where promotion is refused or the
            engine does not answer.
        EncoderError: Before anything is written; the last two or NotPromoted after it, where promotion is refused or
            the engine does not answer.
        EngineUnavailable: Before anything is written; the last two or NotPromoted after it, where promotion is refused
            or the engine does not answer.
        ReleaseError: Before anything is written; the last two or NotPromoted after it, where promotion is refused or
            the engine does not answer.
    """
    find(releases)  # before the lock makes a directory that nobody asked for
    with calibration_lock(releases):
        folder = find(releases)
        with lock_for_reading(folder):
            return _update_of(folder, data, settings, promotion, say, watch)


def _update_of(
    folder: Path,
    data: str,
    settings: UpdateSettings,
    promotion: UpdatePromotion,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Updated:
    """Update one release, which is current.

    Args:
        folder: Of the release. The others are those of `update`.
    """
    with tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        with watch.stage("load"):
            release = load(folder, trusted=promotion.trusted, engine=JOB_ACCESS)
            _check_promotable(release.manifest, promotion)
            encoders = release_encoders(folder, release)
        asked = _settings(release.manifest, settings)
        split = settings.split or release.manifest.data.split
        if release.manifest.state == "provisional" and (standing := release.manifest.calibration):
            say(f"{PROVISIONAL} {standing.because(asked.k)}")
        with watch.stage("read"), local_folder(data, split) as source:
            before = CorpusDigests.of(documents_of(release, watch))
            dataset = read_dataset(source, split, Path(spool), before)
            changes = CorpusChanges.between(before, CorpusDigests.of(dataset.documents))
        if changes.nothing:
            return Updated(release.manifest, folder.name, changes, None, promoted=False)
        _check_dataset(dataset, asked, say)
        fit = _encoder_fit(release.manifest, dataset, encoders)
        for warning in encoder_fit_warnings(fit, encoders.queries.config.name, encoders.queries.config.max_length):
            say(f"warning: {warning}")
        units = SamplingUnits.from_labels(clusters(dataset.answerable))
        drawn = DrawnQueries.draw(units, len(dataset.documents), asked)
        part = drawn.parts["calibration"]
        admitted = admit_update(dataset, Path(spool), changes, release, encoders, part, asked, say, watch)
        inherited = Inherited.everything(release)
        found = study(dataset, admitted.encoded, admitted.index, drawn, asked, watch, inherited)
        with watch.stage("check"):
            check = check_threshold(release, before, dataset, admitted.encoded.answerable, found, settings)
        _tell(check, say)
        with watch.stage("write"):
            record = _record(release.manifest, changes, check, promotion)
            facts = manifest_facts(dataset, admitted, found, asked, release.manifest.adaptation) | _kept_facts(
                release.manifest, admitted, record
            )
            facts |= {"encoder_fit": fit}
            contents = ReleaseContents(
                admitted,
                Path(spool),
                golden_queries(dataset, found, admitted.encoded.answerable),
                query_outcomes(dataset, found),
                found,
                render(dataset, facts, found, release.manifest),
            )
            manifest = writer.write(folder.parent, facts, contents.fill, parent=folder.name)
        with watch.stage("promote"):
            promoted = _promote(folder.parent, manifest, folder.name, check, promotion)
        return Updated(manifest, folder.name, changes, check, promoted)


def _encoder_fit(manifest: Manifest, dataset: Dataset, encoders: ReleaseEncoders) -> EncoderFitRecord | None:
    """Return what is wrong between the encoder of a release and a newer data set; None if nothing is."""
    trained = None if manifest.encoder_fit is None else manifest.encoder_fit.trained_similarity
    return encoder_fit(dataset, encoders.documents, encoders.queries, trained)


def _check_promotable(manifest: Manifest, promotion: UpdatePromotion) -> None:
    """Raise InputError where no update of this release can be promoted without --force."""
    if not promotion.wanted or promotion.force:
        return
    because = manifest.calibration and manifest.calibration.worthless(manifest.policy.k)
    if manifest.policy.kind == "none":
        because = "its policy is none, so there is no threshold to keep"
    if because:
        raise InputError(f"{manifest.release_id}: {because}; run taugate calibrate, or give --force or --no-promote")


def _settings(manifest: Manifest, settings: UpdateSettings) -> CalibrationSettings:
    """Return the settings of the calibration that the current release comes from, with its threshold as given."""
    policy = manifest.policy
    rule = ThresholdRule(
        method="fixed",
        policy="similarity" if policy.kind == "none" else policy.kind,
        metric=policy.metric,
        tau=policy.tau,
    )
    judged = [each for each in manifest.gate if each.kind in _JUDGED_AGAIN and each.admitted]
    gate = GateSettings(asked_margin(judged), judged[-1].confidence) if judged else GateSettings()
    engine = manifest.engine
    if engine is None and settings.embeddings is not None:
        raise InputError(
            f"--embeddings {settings.embeddings}: goes with a release whose vectors are in an engine; those of "
            f"{manifest.release_id} are in its folder, so leave it out"
        )
    return CalibrationSettings(
        split=manifest.data.split if settings.split is None else settings.split,
        k=policy.k,
        **manifest.bootstrap.model_dump(),
        rule=rule.kept_from(policy.method),
        candidates=CandidateSettings(index=manifest.index.kind if engine is None else "flat", gate=gate),
        engine="faiss" if engine is None else engine.kind,
        embeddings=settings.embeddings,
    )


def _check_dataset(dataset: Dataset, asked: CalibrationSettings, say: Callable[[str], None]) -> None:
    """Raise InputError where the corpus has become too small; tell how many queries have lost their answers."""
    if asked.k > len(dataset.documents):
        raise InputError(
            f"{dataset.name}: has {len(dataset.documents)} documents, fewer than the K = {asked.k} of the current "
            "release; run taugate calibrate with a smaller --k"
        )
    for note in dataset.notes:
        say(note)
    check_sizes(dataset, asked)
    if dataset.orphaned:
        say(f"{_queries_are(dataset.orphaned)} left out: every document that answered them was removed")


def _queries_are(count: int) -> str:
    return f"{count:,} {'query is' if count == 1 else 'queries are'}"


def _tell(check: ThresholdCheck, say: Callable[[str], None]) -> None:
    if check.widened:
        say(
            f"warning: the margin is {check.margin:g} instead of {MAX_LOSS:g}: {check.units.words} cannot show that "
            "less is lost, whatever changes; label more, or set --margin"
        )
    if check.unpaired:
        say(
            f"warning: {_queries_are(check.unpaired)} about new documents alone, and not compared; to choose a "
            "threshold with them as well, run taugate calibrate"
        )


def _record(
    parent: Manifest, changes: CorpusChanges, check: ThresholdCheck, promotion: UpdatePromotion
) -> UpdateRecord:
    before = parent.update
    return UpdateRecord(
        parent=parent.release_id,
        calibrated=parent.release_id if before is None else before.calibrated,
        updates=1 if before is None else before.updates + 1,
        added=changes.added,
        changed=changes.changed,
        removed=changes.removed,
        queries=len(check.units),
        evidence=check.units.record,
        loss=check.loss,
        margin=check.margin,
        confidence=CONFIDENCE,
        holds=check.holds,
        forced=promotion.wanted and promotion.force and not check.holds,
    )


def _kept_facts(parent: Manifest, admitted: Admitted, record: UpdateRecord) -> dict[str, Any]:
    """Return the facts of the manifest that are the parent's, or the update's own."""
    facts: dict[str, Any] = {
        "gate": [*(each for each in parent.gate if each.kind not in _JUDGED_AGAIN), *admitted.gate],
        "strata": parent.strata,
        "update": record,
        "labels": parent.labels,
    }
    if parent.calibration is not None:  # its evidence is what τ rests on: an update measures nothing that replaces it
        facts["calibration"] = parent.calibration
    return facts


def _promote(
    releases: Path, manifest: Manifest, parent: str, check: ThresholdCheck, promotion: UpdatePromotion
) -> bool:
    """Sign and promote the release where that is wanted, and τ holds or the user insists."""
    name = manifest.release_id
    if promotion.key is not None:
        sign(releases / name, promotion.key)
    if not promotion.wanted or not (check.holds or promotion.force):
        return False
    shown = f"accuracy at τ not lower by more than {check.margin:g} after an update"
    rule = SatisfiedRule(shown, parent) if check.holds else None
    try:
        promote(releases, name, promotion.trusted, force=promotion.force, rule=rule)
    except EngineUnavailable as error:
        raise EngineUnavailable(
            f"{error}; {name} is written, but not promoted: run taugate release promote {name} --releases {releases}"
        ) from error
    return True
