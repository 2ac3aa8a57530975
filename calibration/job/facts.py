"""What a calibration found, in the manifest's words."""

from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from taugate.calibration.gate.admit import Admitted
from taugate.calibration.job.contents import reference_of
from taugate.calibration.job.standing import standing
from taugate.calibration.job.study import Findings
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.drift.sensitivity import sensitivity
from taugate.ingestion.dataset.dataset import Dataset
from taugate.retrieval.release.layout import GOLDEN, REFERENCE


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
        "gate": admitted.gate,
        "golden": GOLDEN,
        "golden_tolerance": admitted.golden_tolerance,
        "reference": REFERENCE,
    }
