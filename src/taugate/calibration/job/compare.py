"""Measures several encoders on one data set, each by the calibration of its release, without writing one."""

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from taugate.calibration.acceptance.baseline import SearchTrial
from taugate.calibration.comparison.encoders import EncoderComparison, EncoderCost, MeasuredEncoder
from taugate.calibration.comparison.measures import EncoderMeasures, ParaphrasedQueries, encode_with, measure_encoder
from taugate.calibration.encoding.source import RequestedEncoder
from taugate.calibration.job.calibration import CalibrationRequest, run_stages
from taugate.calibration.job.release_stages import Calibration
from taugate.calibration.progress import Job
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.evidence.acceptance import RankingOutcomes
from taugate.policy.arrays import dense_of, require_in_memory
from taugate.release.encoder import FILES, Role
from taugate.release.names import METHODS
from taugate.retrieval.encoder.encoder import ExportedEncoder

# Queries timed one by one, and documents in a batch: some seconds for a large encoder. The shortest of a few times is
# that of a machine with nothing else to do.
_LONE, _BATCH, _TIMES = 32, 64, 3


def compare_encoders(
    data: str,
    encoders: Mapping[str, RequestedEncoder],
    settings: CalibrationSettings,
    margin: float,
    job: Job,
    *,
    measures: bool = False,
) -> EncoderComparison:
    """Measure encoders, and compare them.

    Args:
        encoders: Two or more encoders by the names that tell them apart.
        measures: Whether the papers' measures are taken as well, which takes some seconds an encoder.

    Raises:
        InputError: If the data set or the settings cannot be used.
        EncoderError: If an encoder cannot be loaded or exported.
    """
    measured, units = [], None
    for name, requested in encoders.items():
        job.describe("export", f"Prepared the encoder {name}")
        with tempfile.TemporaryDirectory(prefix="taugate-") as folder:
            spool = Path(folder) / "spool"
            spool.mkdir()
            request = CalibrationRequest.check(data, Path(folder) / "releases", requested, settings, job)
            calibration = run_stages(request, spool, job)
            measured.append(_measured(name, calibration, _measures(calibration) if measures else (None, None)))
            units = calibration.read.inputs.units
    if units is None:
        raise AssertionError("there is no encoder to compare")
    return EncoderComparison.of(measured, units, settings.rule.metric, margin, settings.seed)


def _measures(calibration: Calibration) -> tuple[EncoderMeasures, RankingOutcomes | None]:
    inputs, encoders, encoded = calibration.read.inputs, calibration.read.encoders, calibration.encoded.texts
    dataset, job, settings = inputs.dataset, inputs.job, inputs.settings
    vectors, documents = dense_of(encoded.answerable), require_in_memory(encoded.documents)
    trial = SearchTrial.build(dataset.answerable, vectors, documents, settings.k, dataset.parents)
    encode = None if dataset.vectors is not None else encode_with(encoders.queries, job, encoders.documents)
    with job.task("taking the papers' measures"):
        paraphrased = ParaphrasedQueries.write(dataset.answerable, settings.seed)
        return measure_encoder(trial, paraphrased, encode, settings.seed)


def _measured(
    name: str, calibration: Calibration, measures: tuple[EncoderMeasures | None, RankingOutcomes | None]
) -> MeasuredEncoder:
    inputs, decided, lexical = calibration.read.inputs, calibration.decided, calibration.accepted.search.lexical_part
    judged, dataset = calibration.studied.scored.judged, inputs.dataset
    queries = [query.text for query in dataset.answerable[:_LONE]]
    texts = [dataset.documents[row].encoded_text for row in range(min(_BATCH, len(dataset.documents)))]
    vectors = len(dataset.documents) * calibration.encoded.texts.documents.shape[1] * 4
    encoder, reads_texts = calibration.read.encoders.queries, dataset.vectors is None
    with inputs.job.task("timing the encoder"):
        cost = _cost(encoder, queries, texts, vectors) if reads_texts else EncoderCost(None, None, 0, vectors)
    manifest, policy = calibration.manifest(), decided.policy
    thresholds = {rule.method: rule.tau for rule in decided.alternatives} | {policy.method: policy.tau}
    return MeasuredEncoder(
        name=name,
        k=inputs.settings.k,
        accuracy=judged.accuracy(),
        ndcg=judged.ndcg(),
        metrics=decided.metrics.get("heldout", decided.metrics["calibration"]),
        certified=decided.policy.tau is not None,
        lexical=None if lexical is None else lexical.weight,
        cost=cost,
        isotropy=manifest.isotropy,
        papers_tau=next((tau for method, tau in thresholds.items() if METHODS[method].of_papers), None),
        measures=measures[0],
        everyday=measures[1],
    )


def _cost(encoder: ExportedEncoder, queries: Sequence[str], texts: Sequence[str], vectors: int) -> EncoderCost:
    times = _TIMES if encoder.config.endpoint is None else 1  # an endpoint may cost money
    encoder.encode(queries[:1], "query")  # the first call prepares the graph
    alone = [min(_seconds(encoder, [query], "query") for _ in range(times)) for query in queries]
    rate = len(texts) / min(_seconds(encoder, texts, "document") for _ in range(times))
    size = sum((encoder.folder / name).stat().st_size for name in FILES if (encoder.folder / name).is_file())
    return EncoderCost(1000 * statistics.median(alone), rate, size, vectors)


def _seconds(encoder: ExportedEncoder, texts: Sequence[str], role: Role) -> float:
    began = time.perf_counter()
    encoder.encode(texts, role)
    return time.perf_counter() - began
