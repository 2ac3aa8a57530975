"""One update, from a newer corpus to a release; `_update_of` shows the steps in order."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taugate.calibration.comparison.publish import Promotion, Published, publish
from taugate.calibration.encoding.changes import CorpusChanges, CorpusDigests
from taugate.calibration.encoding.encoder_fit import encoder_fit, encoder_fit_warnings
from taugate.calibration.engines.stored import JOB_ACCESS, documents_of
from taugate.calibration.gate.baseline import AcceptedSearch
from taugate.calibration.job.job import check_sizes
from taugate.calibration.job.release import ReleaseContents, golden_queries, manifest_facts, query_outcomes
from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.measure import DrawnQueries
from taugate.calibration.progress import Job
from taugate.calibration.provisional.words import PROVISIONAL
from taugate.calibration.report.page import render
from taugate.calibration.settings.rules import CONFIDENCE, MAX_LOSS, ThresholdRule
from taugate.calibration.settings.settings import CalibrationSettings, CandidateSettings, GateSettings, requested_margin
from taugate.calibration.settings.update import UpdateSettings
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.study import study
from taugate.calibration.update.acceptance import accept_update, release_encoders
from taugate.calibration.update.check import ThresholdCheck, check_threshold
from taugate.calibration.update.vectors import ReleaseEncoders
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset, read_dataset
from taugate.ingestion.dataset.location import local_folder
from taugate.registry import writer
from taugate.registry.catalog import find
from taugate.registry.lock import calibration_lock, lock_for_reading
from taugate.registry.promotion import SatisfiedRule
from taugate.retrieval.release.manifest import Manifest, UpdateRecord
from taugate.retrieval.release.reader import load
from taugate.retrieval.release.records import EncoderFitRecord

# Kinds of candidate that the gate tests again for each corpus; encoder and projection are kept.
_TESTED_AGAIN = frozenset({"index", "engine"})


@dataclass(frozen=True)
class Updated:
    """The outcome of an update.

    Attributes:
        manifest: Manifest of the new release, or of the current one if nothing changed.
        parent: Id of the release that was current.
        changes: Changes of the corpus.
        check: Whether τ still holds, None if nothing changed.
        published: How publishing the new release ended.
    """

    manifest: Manifest
    parent: str
    changes: CorpusChanges
    check: ThresholdCheck | None = None
    published: Published = field(default_factory=Published)


def update(
    data: str,
    releases: Path,
    settings: UpdateSettings,
    promotion: Promotion,
    job: Job,
) -> Updated:
    """Write a release of a newer corpus with the encoder and the threshold of the current release.

    It becomes current if τ is shown to hold. A directory has one calibration or update at a time.

    Args:
        data: A folder or a URL with the newer corpus and its labelled queries.
        releases: The directory of releases.
        settings: Settings of the check.
        promotion: The requested promotion.
        job: Reports progress and warnings, and times the stages.

    Raises:
        InputError: If the data cannot be used; nothing has been written.
        EncoderError: If the encoder cannot be loaded; nothing has been written.
        EngineUnavailable: If the engine does not respond, before or after the release has been written.
        ReleaseError: If a release cannot be read or promoted, before or after the new one has been written.
    """
    find(releases)  # before the lock would create the directory
    with calibration_lock(releases):
        folder = find(releases)
        with lock_for_reading(folder):
            return _update_of(folder, data, settings, promotion, job)


def _update_of(
    folder: Path,
    data: str,
    settings: UpdateSettings,
    promotion: Promotion,
    job: Job,
) -> Updated:
    """Update the current release, which is in `folder`."""
    with tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        with job.stage("load"):
            release = load(folder, trusted=promotion.trusted, engine=JOB_ACCESS)
            _check_promotable(release.manifest, promotion)
            encoders = release_encoders(folder, release)
        calibration = _settings(release.manifest, settings)
        split = settings.split or release.manifest.data.split
        if release.manifest.state == "provisional" and (record := release.manifest.calibration):
            job.report(f"{PROVISIONAL} {record.because(calibration.k)}")
        with job.stage("read"), local_folder(data, split) as source:
            before = CorpusDigests.of(documents_of(release, job))
            dataset = read_dataset(source, split, Path(spool), before)
            changes = CorpusChanges.between(before, CorpusDigests.of(dataset.documents))
        if changes.is_empty:
            return Updated(release.manifest, folder.name, changes)
        _check_dataset(dataset, calibration, job)
        fit = _encoder_fit(release.manifest, dataset, encoders)
        for warning in encoder_fit_warnings(fit, encoders.queries.config.name, encoders.queries.config.max_length):
            job.report(f"warning: {warning}")
        evidence = release.manifest.evidence
        units = SamplingUnits.of_queries(dataset.answerable, None if evidence is None else evidence.drawn)
        drawn = DrawnQueries.draw(units, len(dataset.documents), calibration)
        accepted = accept_update(dataset, Path(spool), changes, release, encoders, drawn, calibration, job)
        inherited = Inherited.everything(release)
        if inherited.refusal is not None:
            accepted = accepted.with_near_misses(dataset, calibration.seed, job)
        findings = study(dataset, accepted.encoded, accepted.index, drawn, calibration, job, inherited)
        with job.stage("check"):
            check = check_threshold(release, before, dataset, accepted.encoded.answerable, findings, settings)
        _warn(check, job)
        with job.stage("write"):
            facts = manifest_facts(dataset, accepted, findings, calibration, release.manifest.adaptation)
            update_record = _record(release.manifest, changes, check, promotion)
            facts |= _kept_facts(release.manifest, accepted, update_record) | {"encoder_fit": fit}
            contents = ReleaseContents(
                accepted,
                Path(spool),
                golden_queries(dataset, findings, accepted.encoded.answerable),
                query_outcomes(dataset, findings),
                findings,
                render(dataset, facts, findings, release.manifest),
            )
            manifest = writer.write(folder.parent, facts, contents.fill, parent=folder.name)
        with job.stage("promote"):
            published = _publish(folder, manifest, check, promotion, job)
        return Updated(manifest, folder.name, changes, check, published)


def _encoder_fit(manifest: Manifest, dataset: Dataset, encoders: ReleaseEncoders) -> EncoderFitRecord | None:
    """Measure how the encoder of a release misfits a newer data set; None if it fits."""
    trained = None if manifest.encoder_fit is None else manifest.encoder_fit.trained_similarity
    return encoder_fit(dataset, encoders.documents, encoders.queries, trained)


def _check_promotable(manifest: Manifest, promotion: Promotion) -> None:
    """Raise InputError if no update of this release can be promoted without --force."""
    if not promotion.requested or promotion.force:
        return
    because = manifest.calibration and manifest.calibration.chance_warning(manifest.policy.k)
    if manifest.policy.kind == "none":
        because = "its policy is none, so there is no threshold to keep"
    if because:
        raise InputError(f"{manifest.release_id}: {because}; run taugate calibrate, or give --force or --no-promote")


def _settings(manifest: Manifest, settings: UpdateSettings) -> CalibrationSettings:
    """Return the settings of the current release's calibration, with its threshold fixed."""
    policy = manifest.policy
    rule = ThresholdRule(
        method="fixed",
        policy="similarity" if policy.kind == "none" else policy.kind,
        metric=policy.metric,
        tau=policy.tau,
    )
    tested = [record for record in manifest.gate if record.kind in _TESTED_AGAIN and record.admitted]
    gate = GateSettings(requested_margin(tested), tested[-1].confidence) if tested else GateSettings()
    engine = manifest.engine
    if engine is None and settings.embeddings is not None:
        raise InputError(
            f"--embeddings {settings.embeddings}: only for a release whose vectors are in an engine; those of "
            f"{manifest.release_id} are in its folder, so leave the option out"
        )
    return CalibrationSettings(
        split=manifest.data.split if settings.split is None else settings.split,
        k=policy.k,
        **manifest.bootstrap.model_dump(),
        rule=rule.kept_from(policy.method),
        candidates=CandidateSettings(
            index=manifest.index.kind if engine is None else "flat",
            lexical="off" if manifest.lexical is None else manifest.lexical.weight,
            gate=gate,
        ),
        engine="faiss" if engine is None else engine.kind,
        embeddings=settings.embeddings,
    )


def _check_dataset(dataset: Dataset, calibration: CalibrationSettings, job: Job) -> None:
    """Raise InputError if the corpus has become too small; report how many queries have lost their answers."""
    if calibration.k > len(dataset.documents):
        raise InputError(
            f"{dataset.name}: has {len(dataset.documents)} documents, fewer than K = {calibration.k} of the current "
            "release; run taugate calibrate with a smaller --k"
        )
    for note in dataset.notes:
        job.report(note)
    check_sizes(dataset, calibration)
    if dataset.orphaned:
        job.report(f"{_queries_are(dataset.orphaned)} left out: every document that answered them was removed")


def _queries_are(count: int) -> str:
    return f"{count:,} {'query is' if count == 1 else 'queries are'}"


def _warn(check: ThresholdCheck, job: Job) -> None:
    if check.widened:
        job.report(
            f"warning: the margin is {check.margin:g} instead of {MAX_LOSS:g}: {check.units.words} cannot show a "
            "smaller loss; label more, or set --margin"
        )
    if check.unpaired:
        job.report(
            f"warning: {_queries_are(check.unpaired)} only about new documents and cannot be compared; to choose a "
            "threshold with them, run taugate calibrate"
        )


def _record(parent: Manifest, changes: CorpusChanges, check: ThresholdCheck, promotion: Promotion) -> UpdateRecord:
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
        forced=promotion.requested and promotion.force and not check.holds,
    )


def _kept_facts(parent: Manifest, accepted: AcceptedSearch, record: UpdateRecord) -> dict[str, Any]:
    """Return the facts of the manifest that the parent or the update decides."""
    facts: dict[str, Any] = {
        "gate": [*(record for record in parent.gate if record.kind not in _TESTED_AGAIN), *accepted.gate],
        "strata": parent.strata,
        "update": record,
        "labels": parent.labels,
    }
    if parent.calibration is not None:  # the evidence for τ is still the parent's; an update adds none
        facts["calibration"] = parent.calibration
    return facts


def _publish(parent: Path, manifest: Manifest, check: ThresholdCheck, promotion: Promotion, job: Job) -> Published:
    """Sign the release, and promote it if that is requested and τ holds or --force is given."""
    refused = None if check.holds or promotion.force else Published.refused(check.sentence)
    shown = f"accuracy at τ not lower by more than {check.margin:g} after an update"
    satisfied = SatisfiedRule(shown, parent.name) if check.holds else None
    return publish(parent.parent / manifest.release_id, promotion, refused, satisfied, report=job.report)
