"""Recomputes the figures of a release from its evidence.json with Taugate's own code, including those that are drawn.

It is the second opinion on check_certificate.py: of an edited release it says which stated figures change.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from taugate.evidence.abstention.refusal import MAX_LOST, RefusalEvidence, ScoredQuestions, planned_loss, share_at_most
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.drawn import DrawnEvidence, recompute_drawn
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.decide import decide_policy, with_unrestricted
from taugate.evidence.threshold.policy_choice import CalibrationQueries, certifiable_rho
from taugate.release.manifest import ReleaseManifest


def recomputed(release: Path, manifest: ReleaseManifest) -> dict[str, Any]:
    """Return the records of a release, by the places of the manifest, from its evidence.json and its settings."""
    evidence = json.loads((release / "evidence.json").read_text(encoding="utf-8"))
    policy, refusal = manifest.policy, manifest.refusal
    rule = ThresholdRule(
        policy.method,
        "auto" if policy.choice or policy.psi is None else "similarity",
        guarantee=cast("Any", policy.statement or "high-probability"),
        max_loss=policy.max_loss or 0.01,
        max_empty=policy.max_empty,
        confidence=policy.confidence,
        further_losses=tuple(level.max_loss for level in policy.levels[1:]),
    )
    own = DrawnEvidence.of(evidence, manifest, rule)
    scored, units, drawn, roles = own.scored, own.units, own.drawn, own.roles
    part = drawn.parts["calibration"]
    records: dict[str, Any] = {
        **cast("Any", recompute_drawn(evidence, manifest)),
        "evidence": units.record.model_dump(),
    }
    fitted = "heldout" not in drawn.parts and rule.statement is not None and roles is not None
    planned = evidence["planned_rho"]
    if scored.answering is not None:
        answering = replace(
            scored.answering, certified=True, fitted=fitted, planned=None if planned is None else np.float32(planned)
        )
        scored = replace(scored, answering=answering)
    if policy.certificates and units.unit == "document":
        units = replace(units, cap=policy.certificates[0].count_at_most)
    model = None if scored.relevance is None else cast("Any", object())
    queries = CalibrationQueries(
        scored, part.members, part.resamples.rows, roles, model, units, manifest.bootstrap.seed
    )
    decided = decide_policy(rule, queries)
    measured = drawn.parts.get("heldout", part)
    decided = with_unrestricted(decided, queries, scored.take(measured.members))
    records["policy"] = decided.model_dump(exclude={"guarantee", "shortage"})
    if refusal is not None and refusal.is_default:
        records["refusal"] = _refusal(evidence, manifest, queries, rule)
    right = scored.take(measured.members)
    answered = np.flatnonzero(right.judged.accuracy() > 0)
    lost = right.judged.accuracy(right.kept(policy.kind, policy.threshold))[answered] == 0
    of = units.take(measured.members[answered])
    limits = {"lower": 1 - share_at_most(~lost, of), "upper": share_at_most(lost, of)}
    records["checked"] = limits | {"mean": float(lost.mean()), "answers": len(lost), "lost": int(lost.sum())}
    return records


def _refusal(
    evidence: Mapping[str, Any], manifest: ReleaseManifest, queries: CalibrationQueries, rule: ThresholdRule
) -> dict[str, Any]:
    scored, refusal, letters = queries.scored, manifest.refusal, np.array([*evidence["answerable"]["role"]])
    if refusal is None or scored.answering is None:
        raise TypeError("nothing is refused")
    found, scores = np.flatnonzero(scored.judged.accuracy() > 0), scored.judged.top.scores[:, 0]
    certifies = rule.statement is not None
    limiting = "cf" if not certifies else "h" if "h" in letters else "f"
    enough = certifies or not refusal.provisional
    kinds = {
        kind: ScoredQuestions(
            np.array(own["refusal"], dtype=np.float32),
            SamplingUnits.from_clusters(np.array(own["cluster"])),
            np.array(own["chooses"], dtype=np.bool_),
            None if own["field"] is None else np.array(own["field"]),
        )
        for kind, own in evidence["questions"].items()
    }
    units = replace(queries.units, cap=None)
    right = ScoredQuestions(scores[found], units.take(found), np.isin(letters, [*limiting])[found] & enough)
    kept = float(scored.answering.threshold) if evidence["planned_rho"] is not None or evidence["given_rho"] else None
    of_rule = RefusalEvidence(right, cast("Any", kinds), 0, planned_loss(rule), kept)
    uncertified = None
    if certifies and not evidence["given_rho"]:
        usual = replace(right, chooses=np.isin(letters, ["c", "f"])[found] & (not refusal.provisional))
        uncertified = replace(of_rule, right=usual, lost=MAX_LOST, kept=None)
    record = of_rule.record(provisional=refusal.provisional, uncertified=uncertified).model_dump()
    rho = float(replace(of_rule, kept=None).rho)
    if certifies and not evidence["given_rho"]:
        planned = replace(scored.answering, threshold=np.float32(rho), planned=None)
        limit = certifiable_rho(rule, replace(queries, scored=replace(scored, answering=planned)))
        rho = rho if limit is None else min(rho, limit)
    return {"evidence": record["evidence"], "lost": record["lost"], "rho": rho}
