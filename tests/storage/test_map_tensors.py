"""Mapped arrays equal those that are read, and any unreadable file is one kind of error."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from taugate.errors import ReleaseError
from taugate.storage.tensors import map_tensors, read_tensors, tensor_bytes, write_tensors

TYPES = (np.uint8, np.uint16, np.uint32, np.uint64, np.int64, np.float32, np.float64)


def written(path: Path, header: object, data: bytes = bytes(8)) -> Path:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)
    return path


def record(**changes: object) -> dict:
    return {"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]} | changes}


def test_mapped_arrays_equal_read_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {str(dtype): rng.integers(0, 99, (3, 5)).astype(dtype) for dtype in TYPES}
    arrays |= {
        "none": np.empty((0, 4), np.float32),
        "odd": np.arange(3, dtype=np.uint8),
        "turned é": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    }
    path = tmp_path / "arrays"
    write_tensors(path, arrays | {"odd": arrays["odd"] > 1})
    assert path.read_bytes() == tensor_bytes(arrays | {"odd": arrays["odd"] > 1})
    write_tensors(path, arrays)
    assert path.read_bytes() == tensor_bytes(arrays)
    mapped, read = map_tensors(path), read_tensors(path)
    assert mapped.keys() == read.keys() == arrays.keys()
    for name, array in mapped.items():
        assert (array.dtype, array.shape) == (arrays[name].dtype, arrays[name].shape)
        np.testing.assert_array_equal(array, read[name])
        assert not array.flags.writeable


def test_notes_of_a_file_are_no_array(tmp_path: Path) -> None:
    save_file({"a": np.arange(3)}, tmp_path / "arrays", metadata={"format": "np"})
    assert [*map_tensors(tmp_path / "arrays")] == ["a"]


HEADERS = {
    "no JSON": b"x" * 16,
    "not a table": [1, 2],
    "type without a mapping": record(dtype="F8_E5M2", shape=[8]),
    "boolean": record(dtype="BOOL"),
    "shape of more": record(shape=[9]),
    "shape of fewer": record(shape=[7]),
    "shape negative": record(shape=[-8]),
    "shape that overflows": record(shape=[0, (1 << 64) - 1], data_offsets=[0, 0]),
    "shape whose product overflows": record(shape=[1 << 62, 1 << 62]),
    "data beyond the end": record(shape=[9], data_offsets=[0, 9]),
    "data from the middle": record(shape=[4], data_offsets=[4, 8]),
    "data backwards": record(shape=[8], data_offsets=[8, 0]),
    "two of the same place": record() | {"b": record()["a"]},
    "without a shape": {"a": {"dtype": "U8", "data_offsets": [0, 8]}},
    "nested deeply": b"[" * 4000,
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS.keys())
def test_hostile_header_is_refused(tmp_path: Path, header: object) -> None:
    with pytest.raises(ReleaseError, match="arrays: cannot be read as safetensors; calibrate again"):
        map_tensors(written(tmp_path / "arrays", header))


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 1 << 20, 1 << 40, (1 << 64) - 1])
def test_header_longer_than_file_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "arrays"
    path.write_bytes(length.to_bytes(8, "little"))
    with pytest.raises(ReleaseError, match="cannot be read as safetensors"):
        map_tensors(path)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(ReleaseError, match="cannot be read as safetensors"):
            map_tensors(path)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ReleaseError, match="cannot be read as safetensors"):
        map_tensors(tmp_path / "empty")
