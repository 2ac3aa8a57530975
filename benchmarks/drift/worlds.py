"""A release with its traffic: queries that were held out, their topics and articles, and what may happen to it."""

import shutil
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx
import orjson
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from scipy.cluster.vq import kmeans2

from benchmarks.drift.patterns import Rows
from benchmarks.drift.traffic import Pool, asked, encoded, heldout, released
from taugate.drift.monitor import Baseline, Monitor
from taugate.drift.signals import DEFAULT_RULES, Rules, theta_of
from taugate.release.encoder import MODEL
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.reader import Release
from taugate.retrieval.retriever import Retriever

SETS = ("squad_v2_dev", "covidqa_chunks", "cosqa", "squadshifts_new_wiki", "squadshifts_reddit")
_TOPICS, _MIN_PER_TOPIC = 30, 50  # fewer topics if one would have fewer queries
# What the corpus is replaced by; and whose queries are off-topic: those of ood_queries, but for the conversations of
# reddit, which the questions of bank customers resemble: their similarities there are those of ordinary queries.
_ANOTHER = dict.fromkeys(SETS, "squadshifts_new_wiki") | {"squadshifts_new_wiki": "squad_v2_dev"}
_OFF_TOPIC = dict.fromkeys(SETS, "ood_queries") | {"squadshifts_reddit": "cosqa"}
_ALTERED = 0.03  # share of the encoder's weights whose highest byte is altered: their sign


@dataclass(frozen=True)
class DriftWorld:
    """A release and everything that may be asked of it.

    Attributes:
        pool: Held-out queries.
        topics: Of each of them.
        articles: Of each of them.
        strange: Queries that the corpus does not answer.
    """

    name: str
    release: Release
    pool: Pool
    topics: Rows
    articles: Rows
    strange: Pool
    strange_topics: Rows

    def monitor(self, rules: Rules = DEFAULT_RULES, baseline: Baseline | None = None) -> Monitor:
        """Build a monitor that has seen nothing."""
        return monitor(self.release, rules, baseline)


def monitor(release: Release, rules: Rules = DEFAULT_RULES, baseline: Baseline | None = None) -> Monitor:
    """Build the monitor of a release; it has seen nothing."""
    theta = theta_of(release.reference, release.manifest.bootstrap.overlap_percentile)
    return Monitor(release.reference, theta, rules, {} if baseline is None else baseline.bounds)


@lru_cache(maxsize=len(SETS))
def world(data: Path, name: str, work: Path) -> DriftWorld:
    """Calibrated at the default settings, without ρ and lexical share, when it is first asked for."""
    release = released(data, name, work)
    queries = heldout(data, name, release)
    vectors = encoded([*queries], release, work / f"{name}.npy")
    odd = _OFF_TOPIC[name]
    out_of_scope = encoded(asked(data, odd), release, work / f"{odd}-by-{name}.npy")
    return DriftWorld(
        name,
        release,
        Pool.of(vectors, release),
        _clusters(vectors),
        _articles(data, name, [sorted(documents)[0] for documents in queries.values()]),
        Pool.of(out_of_scope, release),
        _clusters(out_of_scope),
    )


def replaced(data: Path, name: str, work: Path) -> Pool:
    """Search the same queries in the corpus of another set, cut at the old threshold."""
    here = world(data, name, work)
    vectors = np.load(work / f"{name}.npy")
    return Pool.of(vectors, here.release, released(data, _ANOTHER[name], work).retriever.index)


def altered(data: Path, name: str, work: Path) -> Pool:
    """Encode the same queries by the release's encoder with altered bytes."""
    return _by(altered_encoder(world(data, name, work).release, work), data, name, work, "altered")


def coarse(data: Path, name: str, work: Path) -> Pool:
    """Encode them by an encoder whose every weight matrix has one scale, which costs 1.2 points of accuracy@5."""
    return _by(coarse_encoder(world(data, name, work).release, work), data, name, work, "int8")


def _by(encoder: ExportedEncoder, data: Path, name: str, work: Path, kind: str) -> Pool:
    release = world(data, name, work).release
    own = replace(release, retriever=Retriever(encoder, release.retriever.index, release.retriever.policy))
    return Pool.of(encoded([*heldout(data, name, release)], own, work / f"{name}-{kind}.npy"), release)


def coarse_encoder(release: Release, work: Path) -> ExportedEncoder:
    """The encoder of a release, quantised per tensor."""
    source, target = _folder(release), work / "int8-per-tensor"
    if not target.is_dir():
        shutil.copytree(source, target)
        quantize_dynamic(str(source / MODEL), str(target / MODEL), weight_type=QuantType.QInt8)
    return ExportedEncoder.load(target)


def altered_encoder(release: Release, work: Path) -> ExportedEncoder:
    """That of a release with some signs of its weights turned: bytes that were altered so that it still answers."""
    source, target = _folder(release), work / "altered-bytes"
    if not target.is_dir():
        shutil.copytree(source, target)
        model, rng = onnx.load(str(source / MODEL)), np.random.default_rng(0)
        for tensor in model.graph.initializer:
            weights = numpy_helper.to_array(tensor)
            if weights.dtype == np.float32 and weights.size > 10_000:
                turned = np.where(rng.random(weights.shape) < _ALTERED, -weights, weights)
                tensor.CopyFrom(numpy_helper.from_array(turned.astype(np.float32), tensor.name))
        onnx.save(model, str(target / MODEL))
    return ExportedEncoder.load(target)


def _folder(release: Release) -> Path:
    encoder = release.retriever.encoder
    if not isinstance(encoder, ExportedEncoder):
        raise TypeError("the release has no encoder of onnxruntime")
    return encoder.folder


def _clusters(vectors: np.ndarray) -> Rows:
    count = max(2, min(_TOPICS, len(vectors) // _MIN_PER_TOPIC))
    _, groups = kmeans2(vectors.astype(np.float64), count, seed=0, minit="++")
    return np.unique(groups, return_inverse=True)[1]  # an empty one has no number


def _articles(data: Path, name: str, documents: list[str]) -> Rows:
    """Group documents by title, or by what comes before the underscore of an id, which is a paper's."""
    lines = (data / name / "corpus.jsonl").read_bytes().splitlines()
    titles = {
        record["_id"]: record.get("title") or record["_id"].partition("_")[0] for record in map(orjson.loads, lines)
    }
    return np.unique([titles[document] for document in documents], return_inverse=True)[1]
