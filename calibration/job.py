"""One calibration from data set to release. `calibrate` reads top to bottom in the order in which it happens."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.artifact.contents import Contents, golden_queries
from calibration.artifact.facts import manifest_facts
from calibration.data.dataset import Dataset, read_dataset
from calibration.encoding.cache import EmbeddingCache
from calibration.encoding.corpus import encode_dataset
from calibration.encoding.source import exported_encoder
from calibration.metrics.bootstrap import Draw, Split
from calibration.metrics.judged import JudgedQueries
from calibration.metrics.measure import measure
from calibration.settings import CalibrationSettings
from calibration.stopwatch import Stopwatch
from calibration.threshold import Threshold, bootstrap_threshold
from retrieval.encoder import OnnxEncoder
from retrieval.errors import InputError, ReleaseError
from retrieval.index import FlatIndex, TopK
from retrieval.release import writer
from retrieval.release.catalog import current_id
from retrieval.release.manifest import Manifest, Metrics
from retrieval.similarity import Float32, pair_similarity


@dataclass(frozen=True)
class Part:
    """Some of the answerable queries with the random choices made for them; random_scores: S_rand, (q,) float32."""

    judged: JudgedQueries
    draw: Draw
    random_scores: Float32


def calibrate(
    data: Path,
    releases: Path,
    encoder_name: str,
    settings: CalibrationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Manifest:
    """Read a data set, measure, choose a threshold and write a release into `releases`; it is not promoted.

    say: told one line of progress or warning at a time. Raises InputError, EncoderError or ReleaseError; then nothing
    has been written.
    """
    _check_releases(releases, say)
    with tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        with watch.stage("read"):
            dataset = read_dataset(data, settings.split, Path(spool))
        _check_sizes(dataset, settings)
        with watch.stage("export"):
            encoder_folder = exported_encoder(encoder_name)
            encoder = OnnxEncoder.load(encoder_folder)
        encoded = encode_dataset(
            dataset, encoder, EmbeddingCache.of(encoder.sha256, encoder.config.dimension), say, watch
        )
        with watch.stage("search"):
            index = FlatIndex.build(encoded.documents)
            judged = JudgedQueries.judge(dataset.answerable, encoded.answerable, index, settings.k)
            unanswerable = index.search(encoded.unanswerable, settings.k)
        with watch.stage("threshold"):
            parts, split = _parts(judged, encoded.answerable, index, settings)
            threshold = bootstrap_threshold(parts["calibration"].judged, parts["calibration"].draw.rows)
            metrics = {name: _measure(part, unanswerable, threshold, settings) for name, part in parts.items()}
        with watch.stage("write"):
            calibration = parts["calibration"]
            queries = [dataset.answerable[position] for position in split.calibration.tolist()]
            golden = golden_queries(queries, calibration.judged, dataset.documents)
            contents = Contents(
                encoder_folder, Path(spool), index, golden, calibration.judged, calibration.random_scores
            )
            facts = manifest_facts(dataset, encoded, encoder, threshold, metrics, settings)
            return writer.write(releases, facts, contents.fill)


def _check_releases(releases: Path, say: Callable[[str], None]) -> None:
    """Find out now, and not after the work, what would keep a release from being written."""
    existing = next(path for path in (releases.absolute(), *releases.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise InputError(f"{existing}: is a file; name a directory for releases")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"{existing}: cannot be written to; name another directory, or mend its permissions")
    try:
        current_id(releases)
    except ReleaseError as error:
        say(f"warning: {error}")


def _check_sizes(dataset: Dataset, settings: CalibrationSettings) -> None:
    if settings.k > len(dataset.documents):
        raise InputError(f"--k {settings.k}: the corpus has only {len(dataset.documents)} documents; give a smaller K")
    answerable = len(dataset.answerable)
    if answerable == round(settings.holdout * answerable):
        raise InputError(
            f"--holdout {settings.holdout}: leaves none of the {answerable} answerable queries to calibrate on; "
            "label more queries or give a smaller share"
        )


def _parts(
    judged: JudgedQueries, vectors: Float32, index: FlatIndex, settings: CalibrationSettings
) -> tuple[dict[str, Part], Split]:
    """Split the queries and draw for each part, in the order of contract §3; the held-out part is drawn last."""
    rng = np.random.default_rng(settings.seed)
    split = Split.of(rng, len(judged), settings.holdout)
    parts = {}
    for name, members in (("calibration", split.calibration), ("heldout", split.heldout)):
        if len(members):
            draw = Draw.of(rng, len(members), len(index), settings)
            random_scores = pair_similarity(vectors[members], index.vectors, draw.random_documents[:, None])[:, 0]
            parts[name] = Part(judged.take(members), draw, random_scores)
    return parts, split


def _measure(part: Part, unanswerable: TopK, threshold: Threshold, settings: CalibrationSettings) -> Metrics:
    tau = np.float32(threshold.tau)
    return measure(part.judged, part.random_scores, unanswerable, part.draw, tau, settings.overlap_percentile)
