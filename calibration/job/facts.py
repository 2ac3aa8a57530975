"""What a calibration found, in the manifest's words."""

import math
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.gate.baseline import Admitted
from taugate.calibration.job.artifact import reference_of
from taugate.calibration.risk import bounds
from taugate.calibration.settings.rules import CONFIDENCE
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study import Findings
from taugate.drift.sensitivity import sensitivity
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.release.layout import GOLDEN, REFERENCE
from taugate.retrieval.release.records import FEWEST_QUERIES, AgainstChance, CalibrationRecord, StateReason

_MOST_QUERIES = 1_000_000  # who would have to label more has another problem than too few labels

Hits = NDArray[np.bool_]


def standing(hits: Hits, documents: int, k: int) -> CalibrationRecord:
    """The record of a release.

    hits: (q,) bool, whether each answerable query has a relevant document among its top K without a cut; documents: N,
    in the corpus. Every query counts as a person's: a data set does not say yet where its queries come from.
    """
    reasons: list[StateReason] = []
    if len(hits) < FEWEST_QUERIES:
        reasons.append("few_queries")
    if documents <= k:
        reasons.append("few_documents")
    return CalibrationRecord(
        state="provisional" if reasons else "calibrated",
        reasons=reasons,
        human=len(hits),
        generated=0,
        accuracy=against_chance(int(hits.sum()), len(hits), min(1.0, k / documents)),
    )


def against_chance(found: int, queries: int, chance: float) -> AgainstChance:
    """Accuracy with its exact lower limit, beside what chance gives.

    By query, whatever documents they share: it asks whether there is anything to calibrate at all, not how much may be
    lost. Where queries have many relevant documents each, all of them hang together, and by document nothing would ever
    be above chance.
    """
    lower = lower_limit(found, queries)
    return AgainstChance(
        accuracy=found / queries,
        lower=lower,
        chance=chance,
        confidence=CONFIDENCE,
        queries_needed=None if lower > chance else _queries_needed(found, queries, chance),
    )


def lower_limit(found: int, queries: int) -> float:
    """One-sided lower confidence limit of a share (Clopper and Pearson, Biometrika 26, 1934): 1 less that of misses."""
    return 1 - bounds.upper_limit(queries - found, queries, CONFIDENCE, binary=True)


def _queries_needed(found: int, queries: int, chance: float) -> int | None:
    """How many queries with this accuracy show it: the fewest whole copies of the set whose limit is above chance."""
    if found / queries <= chance:
        return None
    few, enough = 1, 2
    while lower_limit(enough * found, enough * queries) <= chance:
        few, enough = enough, 2 * enough
        if enough * queries > _MOST_QUERIES:
            return None
    while enough - few > 1:
        middle = math.ceil((few + enough) / 2)
        few, enough = (few, middle) if lower_limit(middle * found, middle * queries) > chance else (middle, enough)
    return enough * queries


def manifest_facts(
    dataset: Dataset,
    admitted: Admitted,
    found: Findings,
    settings: CalibrationSettings,
) -> dict[str, Any]:
    """The manifest less what only the writer knows: schema version, ids, times and files."""
    answerable, unanswerable = len(dataset.answerable), len(dataset.unanswerable)
    return {
        "taugate_version": version("taugate"),
        "data": {
            "name": dataset.name,
            "split": dataset.split,
            "documents": len(dataset.documents),
            "queries": answerable + unanswerable,
            "answerable": answerable,
            "unanswerable": unanswerable,
            "truncated_documents": admitted.encoded.truncated_documents,
            "sha256": dataset.sha256,
        },
        "encoder": admitted.encoder.config.model_dump() | {"sha256": admitted.encoder.sha256},
        "float32_encoder": None
        if admitted.float32 is None
        else admitted.float32.config.model_dump() | {"sha256": admitted.float32.sha256},
        "projection": admitted.projection_record,
        "index": admitted.index_record,
        "policy": found.policy,
        "bootstrap": {
            "bootstraps": settings.bootstraps,
            "sample_size": settings.sample_size,
            "seed": settings.seed,
            "holdout": settings.holdout,
            "overlap_percentile": settings.overlap_percentile,
        },
        "metrics": found.metrics,
        "alternatives": found.alternatives,
        "relevance": found.relevance,
        "isotropy": asdict(found.isotropy),
        "query_set": found.query_set,
        "evidence": found.units.record,
        "strata": found.strata,
        "calibration": standing(found.scored.judged.accuracy() > 0, len(dataset.documents), settings.k),
        "abstention": found.abstention and found.abstention.record,
        "no_answer": found.no_answer,
        "drift": sensitivity(reference_of(found), settings.overlap_percentile),
        "gate": list(admitted.gate),
        "golden": GOLDEN,
        "golden_tolerance": admitted.golden_tolerance,
        "reference": REFERENCE,
    }
