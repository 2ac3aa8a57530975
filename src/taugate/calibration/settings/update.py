"""The settings by which a newer corpus is checked. `taugate recalibrate` has an option for each field."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.settings.settings import CalibrationSettings, CandidateSettings
from taugate.evidence.options import Advice, Options
from taugate.evidence.rules import MAX_LOSS, GateSettings, ThresholdRule, default_margin, requested_margin
from taugate.release.manifest import Manifest
from taugate.release.names import METHODS
from taugate.release.outcome_records import PolicyRecord
from taugate.retrieval.engines.engine import IN_PROCESS

# Kinds of candidate that the gate tests again for each corpus; encoder and projection are kept.
TESTED_AGAIN = frozenset({"index", "engine"})


@dataclass(frozen=True)
class UpdateSettings(Options):
    """Settings of the check that the threshold still holds. The constructor raises InputError for an invalid value.

    Another split has other labels, so the threshold is chosen anew.
    """

    split: str | None = Field(
        default=None, description="labels: name of a file in qrels/, without .tsv (default: as the current release)"
    )
    margin: Annotated[
        Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None,
        Advice("give a loss of accuracy above 0 and below 1"),
    ] = Field(
        default=None,
        description=f"largest loss of accuracy allowed (default: {MAX_LOSS:g}, or the smallest the labels can show)",
    )
    embeddings: str | None = Field(
        default=None,
        description="folder or URL of the vectors that `taugate encode` wrote for the newer corpus; for a release "
        "whose vectors are in an engine",
    )

    def margin_for(self, detectable: float) -> float:
        """Return the margin, or the default for labels that can exclude a loss of `detectable` and no smaller one."""
        return default_margin(MAX_LOSS, detectable) if self.margin is None else self.margin


def kept_rule(policy: PolicyRecord) -> ThresholdRule:
    """Return the rule that keeps the threshold of a policy, as if it had been given with --tau."""
    return ThresholdRule(
        method="fixed",
        policy="similarity" if policy.kind == "none" else policy.kind,
        metric=policy.metric,
        max_loss=policy.max_loss or MAX_LOSS,
        confidence=policy.confidence,
        tau=policy.tau,
    )


def kept_settings(manifest: Manifest, embeddings: str | None) -> CalibrationSettings:
    """Return the settings of the current release's calibration, with its threshold fixed."""
    tested = [record for record in manifest.gate if record.kind in TESTED_AGAIN and record.admitted]
    gate = GateSettings(requested_margin(tested), tested[-1].confidence) if tested else GateSettings()
    engine = manifest.engine
    return CalibrationSettings(
        split=manifest.data.split,
        k=manifest.policy.k,
        **manifest.bootstrap.model_dump(),
        rule=kept_rule(manifest.policy).kept_from(manifest.policy.method),
        candidates=CandidateSettings(
            index=manifest.index.kind if engine is None else "flat",
            lexical="off" if manifest.lexical is None else manifest.lexical.weight,
            gate=gate,
        ),
        engine=IN_PROCESS if engine is None else engine.kind,
        accept_vectors=bool(manifest.accepts_vectors),
        embeddings=embeddings,
    )


def requested_rule(policy: PolicyRecord, strata: str | None = None) -> ThresholdRule:
    """Return the rule that was requested of the calibration of a policy with a guarantee."""
    max_losses, offered = [level.max_loss for level in policy.levels], METHODS[policy.method].statements
    return ThresholdRule.from_options(
        method=policy.method,
        policy="auto" if policy.choice is not None or policy.kind == "none" else policy.kind,
        metric=policy.metric,
        guarantee=policy.statement if len(offered) > 1 and policy.statement in offered else None,
        max_loss=max_losses or (None if policy.max_loss is None else [policy.max_loss]),
        confidence=policy.confidence,
        max_empty=policy.max_empty,
        strata=strata and f"metadata.{strata}",
        count_at_most=next((certificate.count_at_most for certificate in policy.certificates), None),
    )
