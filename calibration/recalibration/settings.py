"""The settings of a recalibration: those that the current release was calibrated with, read from its manifest."""

from dataclasses import replace
from pathlib import Path

from taugate.calibration.encoding.source import AskedEncoder
from taugate.calibration.settings.rules import AbstentionRule, ThresholdRule
from taugate.calibration.settings.settings import CalibrationSettings, CandidateSettings, GateSettings
from taugate.errors import InputError
from taugate.ingestion.dataset.judgements import HUMAN, TRAFFIC
from taugate.retrieval.release.layout import ENCODER_FOLDER, FLOAT32_FOLDER
from taugate.retrieval.release.manifest import Manifest


def inherited_settings(manifest: Manifest, *, with_traffic: bool) -> CalibrationSettings:
    """Return the settings that a release was calibrated with, so that a newer data set is calibrated in the same way.

    What the calibration chose by itself is asked for by name: the kind of index, the projection and the precision in
    force are tried again, and the gate judges them again. A policy that `auto` chose is chosen anew.

    manifest: of the release; with_traffic: whether judged traffic is to count beside the release's own split, as with
    --labels human,traffic. Raises InputError where the threshold of the release was given with --tau, and where its
    settings do not go with judged traffic.
    """
    before = () if manifest.labels is None else manifest.labels.splits
    settings = CalibrationSettings(
        split=manifest.data.split,
        k=manifest.policy.k,
        **manifest.bootstrap.model_dump(),
        rule=_rule(manifest),
        abstention=_abstention(manifest),
        candidates=_candidates(manifest),
        labels=(HUMAN, *before[1:]) if before else (),
    )
    if not with_traffic or TRAFFIC in settings.labelled_splits:
        return settings
    return replace(settings, labels=(HUMAN, TRAFFIC), holdout=0.0)


def inherited_encoder(folder: Path, manifest: Manifest) -> AskedEncoder:
    """Return the encoder of a release, which its own folder holds: the float32 one, of which an int8 one was made.

    folder: of the release; manifest: of the same.
    """
    return AskedEncoder(
        str(folder / (ENCODER_FOLDER if manifest.float32_encoder is None else FLOAT32_FOLDER)), new=True
    )


def _rule(manifest: Manifest) -> ThresholdRule:
    policy = manifest.policy
    if policy.method == "fixed":
        raise InputError(
            f"{manifest.release_id}: its threshold was given with --tau, so there is no rule to choose another by; run "
            "taugate calibrate once without --tau, and promote what it writes"
        )
    if policy.method == "bootstrap":
        return ThresholdRule.from_options(metric=policy.metric)
    asked = [each.max_loss for each in policy.levels]
    return ThresholdRule.from_options(
        method=policy.method,
        policy="auto" if policy.choice is not None or policy.kind == "none" else policy.kind,
        metric=policy.metric,
        guarantee=policy.statement if policy.method == "risk-control" and policy.statement != "labels" else None,
        max_loss=asked or (None if policy.max_loss is None else [policy.max_loss]),
        confidence=policy.confidence,
        max_empty=policy.max_empty,
        strata=None if manifest.strata is None else f"metadata.{manifest.strata.field}",
    )


def _abstention(manifest: Manifest) -> AbstentionRule | None:
    record = manifest.abstention
    if record is None or record.answered_unanswerable.asked is None:
        return None
    return AbstentionRule(
        max_answered=record.answered_unanswerable.asked,
        max_empty=record.empty_answerable.asked,
        confidence=record.confidence,
    )


def _candidates(manifest: Manifest) -> CandidateSettings:
    judged = [each for each in manifest.gate if each.admitted]
    projection = manifest.projection
    return CandidateSettings(
        projection="none" if projection is None else "query-pca",
        retention=None if projection is None else projection.retention,
        precision=manifest.encoder.precision,
        index=manifest.index.kind,
        gate=GateSettings(judged[-1].margin, judged[-1].confidence) if judged else GateSettings(),
    )
