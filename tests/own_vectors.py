"""A copy of the sample data set that comes with vectors, as a user's own model would make them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.encoder.encoder import ExportedEncoder


def texts_of(data: Path, name: str) -> list[str]:
    """Return the texts of a file of a data set, in its order."""
    return [json.loads(line)["text"] for line in (data / name).read_text(encoding="utf-8").splitlines()]


def with_vectors(sample: Path, encoder: Path, folder: Path) -> tuple[Path, NDArray[Any], NDArray[Any]]:
    """Copy a data set, and write the vectors of its documents and queries; returns both, too."""
    shutil.copytree(sample, folder)
    loaded = ExportedEncoder.load(encoder)
    documents = loaded.encode(texts_of(folder, "corpus.jsonl"), "document")
    queries = loaded.encode(texts_of(folder, "queries.jsonl"), "query")
    np.save(folder / "vectors.npy", documents)
    np.save(folder / "queries.npy", queries)
    return folder, documents, queries
