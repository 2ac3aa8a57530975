"""An index of a subset scores documents as before, to the bit, for every kind."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taugate.errors import InputError
from taugate.release.names import INDEX_KINDS, Kind
from taugate.retrieval.index.approximate import ApproximateIndex, build, load_index, save, subset
from tests.retrieval.drawn import KINDS, D, K, clustered
from tests.vectors import unit

COUNT, GONE = 2000, 7


@pytest.mark.parametrize("kind", KINDS)
def test_subset_scores_as_before(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INDEX_KINDS, "ivf-pq", replace(INDEX_KINDS["ivf-pq"], min_documents=COUNT - GONE))
    documents = unit(clustered())[:COUNT]
    rng = np.random.default_rng(5)
    before = build(kind, documents)
    if isinstance(before, ApproximateIndex):
        before.breadth = 40
    save(before, tmp_path)
    mapped = load_index(tmp_path, kind, D)
    kept = np.delete(np.arange(len(documents)), rng.choice(len(documents), GONE, replace=False))
    after = subset(mapped, kept)
    assert (len(after), after.dimension, after.kind) == (len(kept), D, kind)
    np.testing.assert_array_equal(after.vectors[np.arange(len(kept))], before.vectors[kept])
    if isinstance(after, ApproximateIndex):
        assert after.breadth == 40
    (tmp_path / "after").mkdir()
    save(after, tmp_path / "after")
    queries = unit(documents[:50] + 0.2 * rng.standard_normal((50, D)))
    top = load_index(tmp_path / "after", kind, D).search(queries, K)
    np.testing.assert_array_equal(top.scores, before.score(queries, kept[top.positions]))
    if not isinstance(after, ApproximateIndex):
        longer = before.search(queries, K + GONE)
        for found, positions in zip(top.positions, longer.positions, strict=True):
            np.testing.assert_array_equal(kept[found], positions[np.isin(positions, kept)][:K])

    if kind == "ivf-pq":
        with pytest.raises(InputError, match=f"{COUNT - GONE - 1} documents are too few for ivf-pq.*calibrate again"):
            subset(mapped, kept[1:])
