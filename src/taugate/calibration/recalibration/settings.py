"""The settings of a recalibration: those that the current release was calibrated with, read from its manifest."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from taugate.calibration.encoding.source import AskedEncoder
from taugate.calibration.settings.rules import AbstentionRule, ThresholdRule
from taugate.calibration.settings.settings import (
    CalibrationSettings,
    CandidateSettings,
    GateSettings,
    IndexChoice,
    PrecisionChoice,
    ProjectionChoice,
    asked_margin,
)
from taugate.errors import InputError
from taugate.ingestion.dataset.judgements import GENERATED, HUMAN, TRAFFIC
from taugate.retrieval.index.kinds import Kind
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.records import GateRecord


def inherited_settings(manifest: Manifest) -> CalibrationSettings:
    """Return the settings that a release was calibrated with, so that a newer data set is calibrated in the same way.

    What the gate judged is asked for again, admitted or not. A policy that `auto` chose is chosen anew. A release over
    an engine is followed by another one over an engine of its kind.

    Args:
        manifest: Of the release.

    Raises:
        InputError: Where its threshold was given with --tau.
    """
    before = () if manifest.labels is None else manifest.labels.splits
    return CalibrationSettings(
        split=manifest.data.split,
        k=manifest.policy.k,
        **manifest.bootstrap.model_dump(),
        rule=_rule(manifest),
        abstention=_abstention(manifest),
        candidates=_candidates(manifest),
        labels=(HUMAN, *before[1:]) if before else (),
        engine="faiss" if manifest.engine is None else manifest.engine.kind,
    )


def counting_traffic(settings: CalibrationSettings, splits: Collection[str]) -> CalibrationSettings:
    """Return the same settings with judged traffic beside the release's own split, as with --labels human,traffic.

    The split `human` takes the place of `generated`: generated queries never count among those that people ask.

    Args:
        settings: Of the release.
        splits: Of the newer data set.

    Raises:
        InputError: Where the settings do not go with judged traffic, and where nothing else was judged by people.
    """
    if TRAFFIC in settings.labelled_splits:
        return settings
    split = settings.split
    if split == GENERATED:
        if HUMAN not in splits:
            raise InputError(
                "users judge only what the search shows them, so traffic alone cannot tell what it misses; judge some "
                "queries with taugate judge"
            )
        split = HUMAN
    return replace(settings, split=split, labels=(HUMAN, TRAFFIC), holdout=0.0)


def inherited_encoder(folder: Path, manifest: Manifest) -> AskedEncoder:
    """Return the float32 encoder of queries of a release.

    Args:
        folder: Of the release.
        manifest: Of the same.
    """
    return AskedEncoder(str(folder / [*manifest.query_encoders][-1]), new=True)


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
    """Return what the gate was asked to judge: several candidates of one kind are those of `auto`."""
    judged: dict[str, list[GateRecord]] = defaultdict(list)
    for each in manifest.gate:
        judged[each.kind].append(each)
    retention: float | None = None
    projection: ProjectionChoice = "none"
    if judged["projection"]:
        projection = "auto" if len(judged["projection"]) > 1 else "query-pca"
    if projection == "query-pca":  # the candidate's name is "query-pca, retention 0.9"
        retention = float(judged["projection"][0].candidate.rpartition(" ")[2])
    precision: PrecisionChoice = manifest.answering.precision
    if judged["precision"] and precision == "float32":
        precision = "auto"
    index: IndexChoice = manifest.index.kind if manifest.engine is None else "flat"
    if judged["index"]:  # the name is "hnsw, breadth 64", or the kind alone
        name = judged["index"][0].candidate.partition(",")[0]
        index = "auto" if len(judged["index"]) > 1 else next(kind for kind in get_args(Kind) if kind == name)
    gate = _gate(manifest.gate, len([kind for kind, records in judged.items() if records]))
    return CandidateSettings(projection=projection, retention=retention, precision=precision, index=index, gate=gate)


def _gate(records: Sequence[GateRecord], kinds: int) -> GateSettings:
    """Return the gate's conditions as they were asked for.

    Args:
        kinds: Of candidates, among which its error was divided.
    """
    if not records:
        return GateSettings()
    return GateSettings(asked_margin(records), round(1 - (1 - records[0].confidence) * kinds, 12))
