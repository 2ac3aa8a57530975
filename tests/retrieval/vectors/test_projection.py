"""The projection is the paper's Algorithm 1, for any batch, and round-trips through its file."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from taugate.errors import ReleaseError
from taugate.retrieval.vectors import Projection
from tests.vectors import unit


@pytest.fixture
def projection() -> Projection:
    rng = np.random.default_rng(0)
    components, _ = np.linalg.qr(rng.normal(size=(48, 48)))
    return Projection(rng.normal(size=48) / 20, components[:, :20])


def test_projected_inner_product_is_cosine(projection: Projection) -> None:
    """Lines 4 and 7 of Algorithm 1."""
    rng = np.random.default_rng(1)
    x, y = unit(rng.normal(size=(5, 48))), unit(rng.normal(size=(7, 48)))
    moved_x, moved_y = (x - projection.mean) @ projection.components, (y - projection.mean) @ projection.components
    for i, a in enumerate(moved_x):
        for j, b in enumerate(moved_y):
            cosine = a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
            assert projection.apply(x)[i] @ projection.apply(y)[j] == pytest.approx(cosine, abs=1e-6)


def test_zero_vector_remains_zero(projection: Projection) -> None:
    vectors = np.zeros((2, 48), dtype=np.float32)
    vectors[1] = unit(np.ones((1, 48)))[0]
    moved = projection.apply(vectors)
    assert not moved[0].any()
    assert np.linalg.norm(moved[1]) == pytest.approx(1, abs=1e-6)


def test_projection_is_independent_of_batch(projection: Projection) -> None:
    vectors = unit(np.random.default_rng(2).normal(size=(9000, 48)))
    whole = projection.apply(vectors)
    for row in (0, 17, 8191, 8192, 8999):
        np.testing.assert_allclose(projection.apply(vectors[row : row + 1])[0], whole[row], atol=1e-7)


def test_saved_projection_is_read_back(projection: Projection, tmp_path: Path) -> None:
    projection.save(tmp_path / "p")
    again = Projection.load(tmp_path / "p", 48, 20)
    assert again.mean.tobytes() == projection.mean.tobytes()
    assert again.components.tobytes() == np.ascontiguousarray(projection.components).tobytes()
    assert again.dimensions == (48, 20)


def broken(name: str, projection: Projection) -> bytes:
    arrays = {"mean": projection.mean, "components": np.ascontiguousarray(projection.components)}
    match name:
        case "not safetensors":
            return b"nonsense"
        case "other shape":
            arrays["components"] = np.ones((48, 21))
        case "float32":
            arrays = {key: array.astype(np.float32) for key, array in arrays.items()}
        case "not finite":
            arrays["mean"] = np.full(48, np.nan)
        case "one array":
            del arrays["mean"]
    return save(arrays)


@pytest.mark.parametrize("name", ["not safetensors", "other shape", "float32", "not finite", "one array"])
def test_invalid_projection_file_is_refused(name: str, projection: Projection, tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(broken(name, projection))
    with pytest.raises(ReleaseError, match="calibrate again"):
        Projection.load(tmp_path / "p", 48, 20)
