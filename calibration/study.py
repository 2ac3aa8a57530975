"""Everything a calibration finds out about a data set, from its vectors to the rule in force; nothing is written."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.alternatives import alternatives
from calibration.data.dataset import Dataset
from calibration.decide import decide
from calibration.encoding.corpus import EncodedDataset
from calibration.evidence import Evidence
from calibration.metrics.bootstrap import Draw, Split
from calibration.metrics.isotropy import Isotropy, isotropy
from calibration.metrics.judged import JudgedQueries
from calibration.metrics.measure import measure
from calibration.query_set.clusters import clusters
from calibration.query_set.measure import measure_query_set
from calibration.relevance.estimate import Estimated, estimate
from calibration.relevance.parts import FEWEST_QUERIES, Parts
from calibration.relevance.record import relevance_record
from calibration.scored import Scored
from calibration.settings import CalibrationSettings
from calibration.stopwatch import Stopwatch
from retrieval.errors import InputError
from retrieval.index.build import AnyIndex
from retrieval.release.evidence import Alternative, RelevanceRecord
from retrieval.release.manifest import Metrics, PolicyRecord
from retrieval.release.query_set import QuerySetRecord
from retrieval.similarity import Float32

# Equal vectors have similarities that differ by some units in the last place of float32, 6e-8 each near 1.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Part:
    """Some of the answerable queries, by position, with the random choices made for them.

    random_scores: S_rand, (q,) float32.
    """

    members: NDArray[np.int64]
    draw: Draw
    random_scores: Float32


@dataclass(frozen=True)
class Findings:
    """What was found.

    parts: "calibration" and, with a holdout, "heldout"; roles: which of the former fit, help to choose, certify.
    """

    index: AnyIndex
    scored: Scored
    parts: dict[str, Part]
    roles: Parts | None
    estimated: Estimated | None
    policy: PolicyRecord
    metrics: dict[str, Metrics]
    alternatives: list[Alternative]
    relevance: RelevanceRecord | None
    isotropy: Isotropy
    query_set: QuerySetRecord

    @property
    def threshold(self) -> np.float32 | None:
        """τ as it is compared."""
        return None if self.policy.tau is None else np.float32(self.policy.tau)


def study(
    dataset: Dataset, encoded: EncodedDataset, index: AnyIndex, settings: CalibrationSettings, watch: Stopwatch
) -> Findings:
    """Search, split, fit, decide, measure. Raises InputError where the data cannot bear what is asked."""
    with watch.stage("search"):
        judged = JudgedQueries.judge(dataset.answerable, encoded.answerable, index, settings.k)
        unanswerable = index.search(encoded.unanswerable, settings.k)
        parts = _parts(len(judged), encoded.answerable, index, settings)
        _check_scores(judged, parts)
    calibration = parts["calibration"]
    members = calibration.members
    with watch.stage("model"):
        roles = Parts.of(members, settings.seed) if len(members) >= FEWEST_QUERIES else None
        no_answer = (unanswerable, encoded.unanswerable)
        estimated = (
            estimate(judged, encoded.answerable, no_answer, roles, encoded.documents, encoded.lengths)
            if roles
            else None
        )
        relevance = (estimated.answerable, estimated.unanswerable) if estimated else (None, None)
        scored = Scored(judged, unanswerable, *relevance)
    with watch.stage("query set"):
        random_scores = np.concatenate([part.random_scores for part in parts.values()])
        worth = measure_query_set(dataset.answerable, judged, random_scores, encoded.documents, settings.seed)
        spread = isotropy(encoded.documents)
    with watch.stage("threshold"):
        labels = clusters(dataset.answerable)
        evidence = Evidence(scored, members, calibration.draw.rows, roles, estimated, labels, settings.seed)
        policy = decide(settings.rule, evidence)
        others = alternatives(settings.rule, evidence, _last(parts, roles))
        metrics = {name: _measure(part, scored, policy, settings) for name, part in parts.items()}
    heldout = parts["heldout"].members if "heldout" in parts else None
    reliability = relevance_record(scored, roles, estimated, heldout)
    return Findings(index, scored, parts, roles, estimated, policy, metrics, others, reliability, spread, worth)


def _last(parts: Mapping[str, Part], roles: Parts | None) -> NDArray[np.int64]:
    """The queries that had the least say: held-out ones, else those that the model was not fitted on."""
    if "heldout" in parts:
        return parts["heldout"].members
    return parts["calibration"].members if roles is None else roles.rest


def _check_scores(judged: JudgedQueries, parts: Mapping[str, Part]) -> None:
    scores = np.concatenate([judged.top.scores.ravel(), *(part.random_scores for part in parts.values())])
    if np.ptp(scores) <= _ROUNDING:
        raise InputError(
            f"every similarity is {scores[0]:.6g}: no threshold can tell documents apart; the encoder gives all "
            "texts the same vector, or all texts are the same"
        )


def _parts(queries: int, vectors: Float32, index: AnyIndex, settings: CalibrationSettings) -> dict[str, Part]:
    """Split the queries and draw for each part, as docs/calibration.md has it; the held-out part is drawn last."""
    rng = np.random.default_rng(settings.seed)
    split = Split.of(rng, queries, settings.holdout)
    parts = {}
    for name, members in (("calibration", split.calibration), ("heldout", split.heldout)):
        if len(members):
            draw = Draw.of(rng, len(members), len(index), settings)
            random_scores = index.score(vectors[members], draw.random_documents[:, None])[:, 0]
            parts[name] = Part(members, draw, random_scores)
    return parts


def _measure(part: Part, scored: Scored, policy: PolicyRecord, settings: CalibrationSettings) -> Metrics:
    tau = None if policy.tau is None else np.float32(policy.tau)
    queries = scored.take(part.members)
    return measure(queries, part.random_scores, part.draw, policy.kind, tau, settings.overlap_percentile)
