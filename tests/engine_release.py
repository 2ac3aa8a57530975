"""The same release twice: with local vectors and documents, and with both in an engine."""

import json
import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

from taugate.policy.relevance import Background, ComputedBackground, Relevance
from taugate.registry.catalog import find
from taugate.release import golden
from taugate.release.files import IN_ENGINE
from taugate.release.golden import GoldenQuery
from taugate.release.layout import GOLDEN, LEXICAL, MANIFEST, RELEVANCE, content_digest, release_id
from taugate.release.manifest import FileRecord, Manifest
from taugate.retrieval.engines.engine import Engine, Rows
from taugate.retrieval.index.hybrid import HybridIndex, vector_index
from taugate.retrieval.index.lexical import LexicalIndex, lexical_record
from taugate.retrieval.index.words import hybrid_vectors
from taugate.retrieval.reader import Release, load
from taugate.storage.files import sha256_file
from tests.retrieval.engines.corpus import recorded, soon, upload


class Pair(NamedTuple):
    """A releases directory, a release with a local corpus (`here`), and one with its corpus in an engine (`there`)."""

    folder: Path
    here: str
    there: str


def write_pair(releases: Path, folder: Path, engine: Engine, weight: float | None = None) -> Pair:
    """Copy the current release twice, with the same background of the relevance model; the local one becomes current.

    Args:
        releases: Releases directory with a current release.
        folder: New releases directory.
        engine: Engine that receives the collection.
        weight: Weight of the lexical share; None for that of the current release.
    """
    source = load(find(releases))
    relevance = source.retriever.relevance
    assert relevance is not None
    index = vector_index(source.retriever.index)
    vectors = index.vectors[np.arange(len(source.documents))]  # type: ignore[attr-defined]
    lengths = np.array([len(document.encoded_text.encode()) for document in source.documents])
    queries = source.retriever.vectors([query.text for query in source.golden])
    stored = Background.of(vectors, queries, lengths)
    computed = ComputedBackground.of((stored.mean, stored.covariance), queries)
    rows = Rows(vectors, [*source.documents])
    record = recorded(engine, rows)
    hybrid = None
    if weight is not None:
        words = LexicalIndex.of(document.encoded_text for document in source.documents)
        hybrid = HybridIndex(index, words, weight)
    folder.mkdir()
    here = _write(source, find(releases), folder, replace(relevance, background=stored), {}, hybrid)
    there = _write(
        source,
        find(releases),
        folder,
        replace(relevance, background=computed),
        {"engine": json.loads(record.model_dump_json())},
        hybrid,
    )
    if record.collection not in engine.names(soon()):
        upload(engine, record.collection, rows)
    (folder / "current").write_text(f"{here}\n")
    return Pair(folder, here, there)


def _write(
    source: Release, original: Path, folder: Path, relevance: Relevance, engine: dict, hybrid: HybridIndex | None
) -> str:
    staging = shutil.copytree(original, folder / "staging")
    relevance.save(staging / RELEVANCE)
    lexical = {}
    if hybrid is not None:
        hybrid.lexical.save(staging / LEXICAL)
        lexical = {"lexical": lexical_record(hybrid.lexical, hybrid.weight)}
        golden.write_golden(staging / GOLDEN, [_searched(source, hybrid, query) for query in source.golden])
    if engine:
        for name in IN_ENGINE:
            (staging / name).unlink(missing_ok=True)
    files = {
        name: FileRecord(sha256=sha256_file(staging / name), bytes=(staging / name).stat().st_size)
        for name in {*source.manifest.files, *([LEXICAL] if lexical else [])}
        if not engine or name not in IN_ENGINE
    }
    fields = source.manifest.model_dump() | engine | lexical | {"files": files, "release_id": "", "parent": None}
    if engine:
        fields["index"] |= {"kind": "hnsw", "breadth": 128, "recall": 1.0, "depth": 50}
    draft = Manifest.model_validate(fields)
    name = release_id(datetime.fromisoformat(draft.created_at), content_digest(draft.model_dump(mode="json")))
    manifest = draft.model_copy(update={"release_id": name}).model_dump(mode="json")
    (staging / MANIFEST).write_bytes(orjson.dumps(manifest))
    staging.rename(folder / name)
    return name


def _searched(source: Release, hybrid: HybridIndex, query: GoldenQuery) -> GoldenQuery:
    """A golden query with its results by a score with a lexical part."""
    vectors = hybrid_vectors(source.retriever.vectors([query.text]), [query.text])
    top = hybrid.search(vectors, len(query.scores))
    ids = [source.documents[position].id for position in top.positions[0].tolist()]
    return replace(query, documents=ids, scores=top.scores[0].tolist())
