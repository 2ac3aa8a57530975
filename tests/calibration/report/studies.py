"""Calibrations up to the point where the report is written, and data sets to calibrate on."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import EncodedDataset, encode_dataset
from taugate.calibration.encoding.source import RequestedEncoder
from taugate.calibration.job.calibration import CalibrationRequest, run_stages
from taugate.calibration.progress import Job
from taugate.calibration.report.page import render
from taugate.calibration.settings import CalibrationSettings
from taugate.calibration.study.outcomes import Calibrated
from taugate.data.beir import Dataset
from taugate.evidence.rules import ThresholdRule
from taugate.release.manifest import Manifest
from taugate.retrieval.encoder.encoder import ExportedEncoder

NASTY = '</blockquote><script>alert(1)</script><img src=x onerror="alert(2)"> & "quotes" \x07'

COMMAND = "taugate calibrate data --max-loss 0.1"


@dataclass(frozen=True)
class Studied:
    """A calibration up to the point where the report is written."""

    found: Calibrated

    def page(self, parent: Manifest | None = None) -> str:
        return render(self.found, parent, COMMAND)

    def manifest(self) -> Manifest:
        ids = {"release_id": "20260101T000000Z-0123456789ab", "created_at": "2026-01-01T00:00:00+00:00"}
        return Manifest.model_validate(self.found.manifest.model_dump() | ids)

    def with_records(self, **records: Any) -> "Studied":
        manifest = self.found.manifest.model_copy(update=records)
        return Studied(replace(self.found, manifest=manifest))


def studied(
    data: Path, encoder_folder: Path, spool: Path, rule: ThresholdRule | None = None, **settings: Any
) -> Studied:
    spool.mkdir(parents=True)
    asked = CalibrationSettings(rule=rule or ThresholdRule.from_options(), **settings)
    encoder = RequestedEncoder(str(encoder_folder), new=True)
    request = CalibrationRequest.check(str(data), spool / "releases", encoder, asked, Job())
    calibration = run_stages(request, spool, Job())
    return Studied(Calibrated(**vars(calibration.studied), manifest=calibration.manifest()))


def encode_with(encoder_folder: Path, dataset: Dataset) -> EncodedDataset:
    """Encode a data set by the encoder in a folder."""
    encoder = ExportedEncoder.load(encoder_folder)
    cache = EmbeddingCache.of(encoder)
    return encode_dataset(dataset, encoder, cache, Job())


def write(folder: Path, documents: list[str], queries: list[tuple[str, int | None]]) -> Path:
    """A data set; a query comes with the position of its document, None if it has no answer."""
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{at}", "title": f"Title {at}", "text": text} for at, text in enumerate(documents)]
    asked = [{"_id": f"q{at}", "text": text} for at, (text, _) in enumerate(queries)]
    for name, records in (("corpus", corpus), ("queries", asked)):
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    rows = [f"q{at}\td{target or 0}\t{int(target is not None)}\n" for at, (_, target) in enumerate(queries)]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8")
    return folder


def sample_texts(sample: Path) -> tuple[list[str], list[str]]:
    return tuple(  # type: ignore[return-value]
        [json.loads(line)["text"] for line in (sample / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("corpus", "queries")
    )
