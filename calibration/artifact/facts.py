"""What a calibration found, in the manifest's words."""

from importlib.metadata import version
from typing import Any

from calibration.data.dataset import Dataset
from calibration.encoding.corpus import EncodedDataset
from calibration.settings import CONFIDENCE, CalibrationSettings
from calibration.threshold import Threshold
from retrieval.encoder import OnnxEncoder
from retrieval.index import FlatIndex
from retrieval.release.layout import GOLDEN, REFERENCE
from retrieval.release.manifest import Metrics


def manifest_facts(
    dataset: Dataset,
    encoded: EncodedDataset,
    encoder: OnnxEncoder,
    threshold: Threshold,
    metrics: dict[str, Metrics],
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
            "truncated_documents": encoded.truncated_documents,
            "sha256": dataset.sha256,
        },
        "encoder": encoder.config.model_dump() | {"sha256": encoder.sha256},
        "projection": None,
        "index": {"kind": FlatIndex.kind, "metric": "cosine", "documents": len(dataset.documents)},
        "policy": {
            "kind": "similarity",
            "tau": threshold.tau,
            "psi": threshold.psi,
            "k": settings.k,
            "method": "bootstrap",
            "metric": "accuracy",
            "max_loss": None,
            "confidence": CONFIDENCE,
        },
        "bootstrap": {
            "bootstraps": settings.bootstraps,
            "sample_size": settings.sample_size,
            "seed": settings.seed,
            "holdout": settings.holdout,
            "overlap_percentile": settings.overlap_percentile,
        },
        "metrics": metrics,
        "gate": [],
        "golden": GOLDEN,
        "reference": REFERENCE,
    }
