"""A release of as many documents as one likes: one that was calibrated, with its documents tiled and its index rebuilt.

The threshold stays the one of the small corpus: what is measured is how fast a large one answers. The model of relevance
is left out, because it holds figures of every document.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.gate.million import _JITTER, _MARGIN, _tiled
from taugate.calibration.gate.baseline import index_record
from taugate.calibration.gate.indexes import kinds_asked, recall, set_breadth
from taugate.registry.promotion import promote
from taugate.registry.writer import write
from taugate.retrieval.documents.store import Document, DocumentStore, DocumentWriter
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.index import files
from taugate.retrieval.index.approximate import ApproximateIndex
from taugate.retrieval.index.build import build
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.release import golden
from taugate.retrieval.release.golden import GoldenQuery
from taugate.retrieval.release.layout import ENCODER_FOLDER, FLOAT32_FOLDER, GOLDEN, REFERENCE, REPORT
from taugate.retrieval.release.verify import verify

JITTER = _JITTER
_DEPTH = 10  # at which the gate looks


def tiled_release(source: Path, vectors: np.ndarray, queries: np.ndarray, count: int, releases: Path) -> None:
    """Write and promote a release of `count` documents.

    Args:
        source: A release with a similarity policy.
        vectors: Of its documents, (N, d) float32.
        queries: Some that choose the breadth of the index, (q, d) float32, as the release's encoder gives them.
    """
    manifest = verify(source)
    documents = _tiled(vectors, np.random.default_rng(manifest.bootstrap.seed))[:count]
    flat = FlatIndex.build(documents)
    kinds = kinds_asked("auto", count)  # the first is what the gate tries first, and admits on the labelled corpus
    index = build(kinds[0], documents) if kinds else flat
    if isinstance(index, ApproximateIndex):
        set_breadth(index, flat, queries, _DEPTH, _MARGIN)
    found = recall(index, flat, queries, flat.search(queries, _DEPTH))
    with tempfile.TemporaryDirectory(dir=releases.parent) as spool:
        store = _spool(DocumentStore(source), count, Path(spool))
        asked = golden.read(source / GOLDEN)
        encoder = OnnxEncoder.load(source / ENCODER_FOLDER)
        top = index.search(encoder.encode([query.text for query in asked], "query"), manifest.policy.k)
        renewed = [
            GoldenQuery(query.text, query.relevant, [store[at].id for at in positions], scores)
            for query, positions, scores in zip(asked, top.positions.tolist(), top.scores.tolist(), strict=True)
        ]

        def fill(release: Path) -> None:
            for folder in (ENCODER_FOLDER, FLOAT32_FOLDER):
                if (source / folder).is_dir():
                    shutil.copytree(source / folder, release / folder)
            for path in Path(spool).iterdir():
                shutil.copyfile(path, release / path.name)
            for name in (REFERENCE, REPORT):
                shutil.copyfile(source / name, release / name)
            files.save(index, release)
            golden.write(release / GOLDEN, renewed)

        facts = manifest.model_dump(exclude={"schema_version", "release_id", "created_at", "parent", "files"})
        facts["data"]["documents"] = count
        facts["index"] = index_record(index, found, _DEPTH).model_dump() if kinds else facts["index"]
        facts["index"]["documents"] = count
        facts["relevance"] = None
        promote(releases, write(releases, facts, fill).release_id)


def _spool(documents: DocumentStore, count: int, folder: Path) -> DocumentStore:
    """The documents again and again, each copy with an id of its own."""
    writer = DocumentWriter(folder)
    for document in _copies(documents, count):
        writer.append(document)
    writer.close()
    return DocumentStore(folder)


def _copies(documents: DocumentStore, count: int) -> Iterator[Document]:
    for position in range(count):
        turn, at = divmod(position, len(documents))
        document = documents[at]
        yield Document(f"{document.id}#{turn}", document.text, document.title, document.metadata)
