"""A release whose score has a lexical part, made from a release without one."""

import shutil
from dataclasses import replace
from pathlib import Path

from taugate.registry.catalog import find
from taugate.registry.writer import write
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.release import golden
from taugate.retrieval.release.layout import CURRENT, GOLDEN, LEXICAL, MANIFEST
from taugate.retrieval.release.reader import load
from taugate.retrieval.release.records import LexicalRecord
from taugate.storage.files import sha256_file

WEIGHT = 0.7


def write_hybrid_release(releases: Path, folder: Path) -> Path:
    """Add a lexical part to the current release; returns the releases directory with the result alone.

    Threshold and reference remain those of the cosine.
    """
    source = find(releases)
    release = load(source, 1)
    lexical = LexicalIndex.of([document.encoded_text for document in release.documents])
    retriever = replace(release.retriever, index=HybridIndex(release.retriever.index, lexical, WEIGHT))
    lexical.save(folder / LEXICAL)
    top = golden.search(retriever, release.golden)
    queries = [
        replace(query, documents=[release.documents[position].id for position in row.tolist()], scores=scores.tolist())
        for query, row, scores in zip(release.golden, top.positions, top.scores, strict=True)
    ]
    record = LexicalRecord(
        weight=WEIGHT,
        k1=lexical.statistics.k1,
        b=lexical.statistics.b,
        terms=len(lexical.vocabulary),
        sha256=sha256_file(folder / LEXICAL),
    )
    added = {"schema_version", "release_id", "created_at", "parent", "files"}
    facts = release.manifest.model_dump(exclude=added) | {"lexical": record}
    release.close()

    def fill(staging: Path) -> None:
        shutil.copytree(source, staging, dirs_exist_ok=True)
        (staging / MANIFEST).unlink()
        shutil.copyfile(folder / LEXICAL, staging / LEXICAL)
        golden.write(staging / GOLDEN, queries)

    manifest = write(folder / "releases", facts, fill)
    (folder / "releases" / CURRENT).write_text(f"{manifest.release_id}\n", encoding="utf-8")
    return folder / "releases"
