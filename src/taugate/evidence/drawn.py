"""Recomputes what a calibration drew, from evidence.json: roles, bootstrapped metrics, and the papers' τ(ψ).

`check_certificate.py` has no generator of NumPy, so it leaves these out. Fields are as in the manifest.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.measure import DrawnQueries, measure
from taugate.evidence.ranking import AnsweredQueries, JudgedQueries, ResultDocuments, ScoredQueries
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.decide import decide_policy, with_unrestricted
from taugate.evidence.threshold.policy_choice import CalibrationQueries
from taugate.policy.arrays import Float32, Ranking
from taugate.release.manifest import ReleaseManifest
from taugate.release.names import METHODS


@dataclass(frozen=True)
class _Settings:
    """The settings that draw; see `DrawSettings`."""

    rule: ThresholdRule
    holdout: float
    bootstraps: int
    sample_size: int
    seed: int
    overlap_percentile: float


@dataclass(frozen=True)
class DrawnEvidence:
    """The queries of an evidence.json, as a release scored them and as its seed divides them."""

    scored: ScoredQueries
    units: SamplingUnits  # sampling units of the answerable ones
    drawn: DrawnQueries
    roles: QueryRoles | None  # None with too few queries

    @classmethod
    def of(cls, evidence: Any, manifest: ReleaseManifest, rule: ThresholdRule) -> Self:  # noqa: ANN401 (JSON)
        """Read the content of an evidence.json, and divide its queries by the seed of the manifest."""
        units = SamplingUnits.from_clusters(np.array(evidence["answerable"]["cluster"]))
        units = replace(units, cap=evidence["count_at_most"])
        erased = getattr(manifest, "erasure", None)
        documents = manifest.data.documents + (0 if erased is None else erased.documents)
        drawn = DrawnQueries.draw(units, documents, _Settings(rule=rule, **manifest.bootstrap.model_dump()))
        rho = None if manifest.refusal is None else manifest.refusal.rho
        roles = QueryRoles.assign(drawn.parts["calibration"].members, units, manifest.bootstrap.seed)
        return cls(_scored(evidence, rho), units, drawn, roles)

    @property
    def letters(self) -> str:
        """The role of each answerable query; see AnswerableEvidence."""
        letters = np.full(len(self.scored.judged), "c")
        letters[[] if self.roles is None else self.roles.fit] = "f"
        letters[self.drawn.parts["heldout"].members if "heldout" in self.drawn.parts else []] = "h"
        return "".join(letters)


def recompute_drawn(evidence: Any, manifest: ReleaseManifest) -> object:  # noqa: ANN401 (JSON)
    """Return the roles of the queries, the metrics of their parts, and the papers' threshold if it is in force.

    Few labels are estimated with the scores of further queries, which evidence.json does not have.
    """
    if manifest.labels is not None:
        return {}
    policy = manifest.policy
    of_papers = METHODS[policy.method].of_papers
    rule = ThresholdRule(policy.method, "similarity", metric=policy.metric, tau=policy.tau)
    divided = DrawnEvidence.of(evidence, manifest, rule)
    random = evidence["answerable"]["random"]
    scores = np.empty(0, np.float32) if random is None else _float32(random)
    metrics = {
        name: measure(
            divided.scored.take(part.members),
            scores[part.members] if len(scores) else scores,
            part.resamples,
            policy.kind,
            policy.threshold,
            manifest.bootstrap.overlap_percentile,
        ).model_dump()
        for name, part in divided.drawn.parts.items()
    }
    chosen: object = {}
    if of_papers:
        part = divided.drawn.parts["calibration"]
        rows, seed = part.resamples.rows, manifest.bootstrap.seed
        queries = CalibrationQueries(divided.scored, part.members, rows, divided.roles, None, divided.units, seed)
        measured = divided.scored.take(divided.drawn.parts.get("heldout", part).members)
        policy = with_unrestricted(decide_policy(rule, queries), queries, measured)
        chosen = policy.model_dump(include={"tau", "psi", "unrestricted"})
    return {"roles": divided.letters, "metrics": metrics, "policy": chosen}


def _scored(evidence: Any, rho: float | None) -> ScoredQueries:  # noqa: ANN401 (JSON)
    answerable, empty = evidence["answerable"], evidence["unanswerable"]
    (top, relevance), (of_empty, empty_relevance) = (_results(answerable, answerable), _results(empty, answerable))
    documents = None
    if answerable["document"] is not None:
        numbers = np.array(answerable["document"], dtype=np.int32)
        documents = ResultDocuments(numbers, np.ones(numbers.shape, dtype=np.bool_))
    judged = JudgedQueries(
        top, np.array(answerable["grades"]), np.array(answerable["ideal"]), _float32(answerable["correct"]), documents
    )
    answering = None
    if rho is not None:
        answering = AnsweredQueries(_float32(answerable["refusal"]), _float32(empty["refusal"]), np.float32(rho))
    return ScoredQueries(judged, of_empty, relevance, empty_relevance, answering, evidence["zero"])


def _results(columns: Any, answerable: Any) -> tuple[Ranking, Float32 | None]:  # noqa: ANN401 (JSON)
    """Return the results of queries, of which there may be none, and their relevance."""
    shape = (len(columns["scores"]), len(answerable["scores"][0]))
    relevance = None if answerable["relevance"] is None else _float32(columns["relevance"]).reshape(shape)
    return Ranking(_float32(columns["scores"]).reshape(shape), np.zeros(shape, dtype=np.int64)), relevance


def _float32(values: Any) -> Float32:  # noqa: ANN401 (JSON)
    """Return numbers as float32; null is below all others."""
    numbers = np.array(values, dtype=np.float64)
    return np.where(np.isnan(numbers), -np.inf, numbers).astype(np.float32)
