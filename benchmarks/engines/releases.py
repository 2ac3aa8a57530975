"""Releases that nobody calibrated: those of another one, with another corpus, in an engine or in the process.

Encoder, policy and model of relevance stay those of the source: what is measured is how they are served.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from taugate.registry.writer import write
from taugate.retrieval.documents.store import OFFSETS, TEXTS, Document
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.index import files
from taugate.retrieval.index.approximate import AnyIndex
from taugate.retrieval.index.top_k import Searchable
from taugate.retrieval.policy.background import Background, ComputedBackground, ReadDocuments, mean_and_covariance
from taugate.retrieval.policy.relevance import Relevance
from taugate.retrieval.release import golden
from taugate.retrieval.release.golden import GoldenQuery
from taugate.retrieval.release.layout import (
    CURRENT,
    ENCODER_FOLDER,
    FLOAT32_FOLDER,
    GOLDEN,
    REFERENCE,
    RELEVANCE,
    REPORT,
)
from taugate.retrieval.release.manifest import IndexRecord
from taugate.retrieval.release.verify import verify
from taugate.retrieval.vectors.similarity import CorpusVectors, Float32

_DEPTH = 10  # that recall is measured at
_NOT_FACTS = {"schema_version", "release_id", "created_at", "parent", "files"}


@dataclass(frozen=True)
class Source:
    """A release whose encoder and policy others take over.

    Attributes:
        folder: Of the release.
    """

    folder: Path

    def encoder(self) -> OnnxEncoder:
        """Load its float32 encoder."""
        return OnnxEncoder.load(self.folder / ENCODER_FOLDER)

    def golden(self, index: Searchable, documents: Sequence[Document]) -> list[GoldenQuery]:
        """Return its golden queries with the answers of another corpus.

        Args:
            index: Of that.
            documents: Of that.
        """
        asked = golden.read(self.folder / GOLDEN)
        vectors = self.encoder().encode([query.text for query in asked], "query")
        top = index.search(vectors, verify(self.folder).policy.k)
        return [
            GoldenQuery(query.text, query.relevant, [documents[at].id for at in positions], scores)
            for query, positions, scores in zip(asked, top.positions.tolist(), top.scores.tolist(), strict=True)
        ]

    def relevance(
        self, vectors: CorpusVectors, asked: Float32, read: Callable[[np.ndarray], ReadDocuments]
    ) -> tuple[Relevance, Relevance]:
        """Return its model of relevance over another corpus, for a release in the process and for one over an engine.

        Args:
            vectors: (N, d) of the corpus.
            asked: (q, d) of queries.
            read: Its documents by position.
        """
        manifest = verify(self.folder)
        documents = manifest.data.documents
        fitted = Relevance.load(self.folder / RELEVANCE, manifest.encoder.dimension, documents)
        computed = ComputedBackground.of(mean_and_covariance(vectors), asked, read)
        stored = Background(computed.mean, computed.covariance, computed.rows(np.arange(vectors.shape[0])))
        return replace(fitted, background=stored), replace(fitted, background=computed)

    def over_engine(
        self,
        releases: Path,
        record: EngineRecord,
        recall: float,
        queries: Sequence[GoldenQuery],
        relevance: Relevance,
        tau: float | None = None,
    ) -> str:
        """Write a release whose corpus is in an engine; returns its id.

        Args:
            releases: Directory to write to.
            record: Of the collection.
            recall: Of its searches.
            queries: Golden ones.
            relevance: Its model.
            tau: Its threshold; None for that of the source.
        """
        index = IndexRecord(
            kind="hnsw", metric="cosine", documents=record.rows, breadth=record.breadth, recall=recall, depth=_DEPTH
        )
        facts = {"engine": json.loads(record.model_dump_json())}
        return self._write(releases, index, facts, queries, relevance, tau, lambda release: None)

    def in_process(
        self,
        releases: Path,
        index: AnyIndex,
        record: IndexRecord,
        spool: Path,
        queries: Sequence[GoldenQuery],
        relevance: Relevance,
    ) -> str:
        """Write a release that holds its corpus; returns its id.

        Args:
            releases: Directory to write to.
            index: Of the vectors, described by `record`.
            spool: The documents, as DocumentWriter wrote them.
            queries: As of `over_engine`.
            relevance: As of `over_engine`.
        """

        def fill(release: Path) -> None:
            files.save(index, release)
            for name in (TEXTS, OFFSETS):
                shutil.copyfile(spool / name, release / name)

        return self._write(releases, record, {}, queries, relevance, None, fill)

    def _write(  # noqa: PLR0913, PLR0917 (what the two kinds have in common)
        self,
        releases: Path,
        index: IndexRecord,
        more: Mapping[str, Any],
        queries: Sequence[GoldenQuery],
        relevance: Relevance,
        tau: float | None,
        fill: Callable[[Path], None],
    ) -> str:
        facts = verify(self.folder).model_dump(exclude=_NOT_FACTS)
        facts["data"]["documents"] = index.documents
        if tau is not None:
            facts["policy"]["tau"] = tau

        def fill_all(release: Path) -> None:
            for name in (ENCODER_FOLDER, FLOAT32_FOLDER):
                if (self.folder / name).is_dir():
                    shutil.copytree(self.folder / name, release / name)
            for name in (REFERENCE, REPORT):
                shutil.copyfile(self.folder / name, release / name)
            relevance.save(release / RELEVANCE)
            golden.write(release / GOLDEN, queries)
            fill(release)

        return write(releases, {**facts, "index": index.model_dump(), **more}, fill_all).release_id


def make_current(releases: Path, name: str) -> None:
    """Make a release current that nobody has verified: whoever serves it will."""
    (releases / CURRENT).write_text(f"{name}\n")
