"""The files of a release, as calibration has them before they are written."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from calibration.data.dataset import LabelledQuery
from calibration.metrics.judged import JudgedQueries
from retrieval import encoder
from retrieval.documents import OFFSETS, TEXTS, DocumentStore
from retrieval.index import FlatIndex
from retrieval.release import golden
from retrieval.release.golden import GoldenQuery
from retrieval.release.layout import ENCODER_FOLDER, GOLDEN, INDEX, REFERENCE
from retrieval.similarity import Float32

# Enough for any wrong encoder or index to show, few enough to ask at every start (32 × 3 ms on 2 cores).
_GOLDEN_QUERIES = 32


@dataclass(frozen=True)
class Contents:
    """Everything a release holds beside its manifest.

    encoder, documents: folders to copy from; calibration: the queries behind the reference distributions, with their
    random_scores, S_rand, (q,) float32.
    """

    encoder: Path
    documents: Path
    index: FlatIndex
    golden: list[GoldenQuery]
    calibration: JudgedQueries
    random_scores: Float32

    def fill(self, release: Path) -> None:
        """Write every file into an empty folder."""
        (release / ENCODER_FOLDER).mkdir()
        for name in encoder.FILES:
            shutil.copyfile(self.encoder / name, release / ENCODER_FOLDER / name)
        for name in (TEXTS, OFFSETS):
            shutil.copyfile(self.documents / name, release / name)
        self.index.save(release / INDEX)
        golden.write(release / GOLDEN, self.golden)
        reference = {
            "topk": self.calibration.top.scores,
            "correct": self.calibration.correct,
            "random": self.random_scores,
        }
        arrays = {name: np.ascontiguousarray(scores) for name, scores in reference.items()}
        (release / REFERENCE).write_bytes(save(arrays))


def golden_queries(
    queries: Sequence[LabelledQuery], judged: JudgedQueries, documents: DocumentStore
) -> list[GoldenQuery]:
    """Evenly spaced calibration queries with their top-K."""
    chosen = np.unique(np.linspace(0, len(queries) - 1, num=min(_GOLDEN_QUERIES, len(queries))).astype(int))
    return [
        GoldenQuery(
            text=queries[row].text,
            relevant=[documents[position].id for position in queries[row].relevant],
            documents=[documents[position].id for position in judged.top.positions[row].tolist()],
            scores=judged.top.scores[row].tolist(),
        )
        for row in chosen.tolist()
    ]
