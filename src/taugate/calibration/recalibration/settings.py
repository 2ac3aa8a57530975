"""The settings of a recalibration, read from the manifest of the current release."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from taugate.calibration.acceptance.better_lists import PROVISIONAL_WEIGHT
from taugate.calibration.encoding.encoder_options import InputOptions
from taugate.calibration.encoding.source import RequestedEncoder
from taugate.calibration.settings import (
    CalibrationSettings,
    CandidateSettings,
    IndexChoice,
    LexicalChoice,
    PrecisionChoice,
    ProjectionChoice,
    kept_rule,
    requested_rule,
)
from taugate.data.judgements import GENERATED, HUMAN, TRAFFIC
from taugate.errors import InputError
from taugate.evidence.rules import AbstentionRule, GateSettings, ThresholdRule, requested_margin
from taugate.release.manifest import Manifest
from taugate.release.names import METHODS, Kind
from taugate.release.search_records import GateRecord
from taugate.retrieval.encoder.loading import VECTORS
from taugate.retrieval.engines.engine import IN_PROCESS


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
