"""Vectors of a data set that the user's own model made: `vectors` beside corpus.jsonl, `queries` beside queries.jsonl.

Each is a file of NumPy, safetensors or Parquet. Rows are in the order of the lines, or Parquet names them by `_id`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from taugate.data.corpus import CORPUS, read_lines_of_corpus
from taugate.data.judgements import CorpusIds
from taugate.data.lines import stored_file
from taugate.data.queries import QUERIES, DatasetQuery
from taugate.errors import InputError, ReleaseError
from taugate.policy.arrays import Float32
from taugate.retrieval.vectors import extended, unit_vectors, were_normalized
from taugate.storage.files import sha256_file
from taugate.storage.tensors import map_tensors

_OF_DOCUMENTS, _OF_QUERIES = "vectors", "queries"
_SUFFIXES = (".npy", ".safetensors", ".parquet")
VECTOR_FILES = tuple(f"{name}{suffix}" for name in (_OF_DOCUMENTS, _OF_QUERIES) for suffix in _SUFFIXES)
_IDS = ("_id", "id")
_NORMALIZED = ", normalized because similarity is the cosine"


def vector_digests(folder: Path) -> dict[str, str]:
    """Return the digests of the files of vectors that a folder has, by the names of `DataRecord.sha256`."""
    names = {"vectors": _OF_DOCUMENTS, "query_vectors": _OF_QUERIES}
    paths = [(key, folder / f"{name}{suffix}") for key, name in names.items() for suffix in _SUFFIXES]
    return {key: sha256_file(path) for key, path in paths if path.is_file()}


def has_vectors(folder: Path) -> bool:
    """Return whether a folder has vectors of its documents."""
    return any((folder / f"{_OF_DOCUMENTS}{suffix}").is_file() for suffix in _SUFFIXES)


@dataclass(frozen=True)
class _Rows:
    """The vectors of a file."""

    path: Path
    values: NDArray[Any]  # (n, d) floats of any type
    ids: list[str] | None  # id of each row; None if rows are in the order of the lines
    type_name: str

    def unit(self, names: Sequence[str], notes: list[str]) -> tuple[Float32, NDArray[np.float64]]:
        """Return the vectors with length 1 in the order of names, (len(names), d) float32, and their former lengths."""
        in_file = names if self.ids is None else self.ids
        if self.ids is None and len(names) != len(self.values):
            lines = CORPUS if self.path.stem == _OF_DOCUMENTS else QUERIES
            raise InputError(
                f"{self.path}: holds {len(self.values):,} vectors, and {lines} has {len(names):,} lines; write one "
                "vector for each line, in the order of the lines, or name them by a column _id of a Parquet file"
            )
        vectors, lengths = unit_vectors(self.values, lambda row: f"{self.path}: row {row} (from 0, {in_file[row]!r})")
        count = f"{self.path.name}: {len(vectors):,} vectors of {vectors.shape[1]} {self.type_name} numbers"
        if not were_normalized(lengths):
            count += f", of lengths {lengths.min():.3g} to {lengths.max():.3g}{_NORMALIZED}"
        notes.append(count)
        if self.ids is None:
            return vectors, lengths
        rows = {name: row for row, name in enumerate(self.ids)}
        if len(rows) < len(self.ids):
            twice = next(name for row, name in enumerate(self.ids) if rows[name] != row)
            raise InputError(f"{self.path}: {twice!r} has two vectors; remove one")
        if missing := [name for name in names if name not in rows]:
            others = f", nor for {len(missing) - 1:,} others" if len(missing) > 1 else ""
            raise InputError(f"{self.path}: no vector for {missing[0]!r}{others}; add them")
        order = [rows[name] for name in names]
        return vectors[order], lengths[order]


@dataclass(frozen=True)
class DatasetVectors:
    """The vectors of documents and queries, of unit length and of one dimension d."""

    documents: Float32  # (N, d) float32, in the order of the documents
    lengths: NDArray[np.float64]  # (N,) float64, lengths of the documents' vectors in the file
    queries: Float32  # (n, d) float32, in the order of queries.jsonl
    rows: Mapping[str, int]
    sha256: Mapping[str, str]  # digests of the files, by the names of `DataRecord.sha256`
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path, ids: CorpusIds, queries: Mapping[str, DatasetQuery]) -> Self:
        """Read the vectors of a data set; `queries`: queries by id, in the order of queries.jsonl."""
        documents, questions = (_read_rows(folder, name) for name in (_OF_DOCUMENTS, _OF_QUERIES))
        if documents.values.shape[1] != questions.values.shape[1]:
            raise InputError(
                f"{questions.path}: its vectors have {questions.values.shape[1]} numbers, and those of "
                f"{documents.path.name} {documents.values.shape[1]}; make both with one model"
            )
        names, notes = [*ids.passages], list[str]()
        of_lines = names
        if documents.ids is None and len(documents.values) == len(names) + len(ids.empty):
            of_lines = [line.id for line in read_lines_of_corpus(stored_file(folder / CORPUS), CorpusIds())]
        vectors, lengths = documents.unit(of_lines, notes)
        if len(of_lines) > len(names):
            kept = [name not in ids.empty for name in of_lines]
            vectors, lengths = vectors[kept], lengths[kept]
        return cls(
            documents=vectors,
            lengths=lengths,
            queries=questions.unit([*queries], notes)[0],
            rows={query.text: row for row, query in enumerate(queries.values())},
            sha256={"vectors": sha256_file(documents.path), "query_vectors": sha256_file(questions.path)},
            notes=notes,
        )

    def for_inner_product(self, max_norm: float) -> Self:
        """Return vectors whose cosines are in the order of the inner products of those in the files; see `extended`."""
        long = (self.documents * self.lengths[:, None]).astype(np.float32)
        return replace(
            self,
            documents=extended(long, documents=True, max_norm=max_norm),
            queries=extended(self.queries, documents=False, max_norm=max_norm),
            notes=[note.removesuffix(_NORMALIZED) for note in self.notes],
        )

    def of_texts(self, texts: Sequence[str]) -> Float32:
        """Return the vectors of queries by their texts, (n, d) float32."""
        return self.queries[[self.rows[text] for text in texts]]


def _read_rows(folder: Path, name: str) -> _Rows:
    paths = [path for suffix in _SUFFIXES if (path := folder / f"{name}{suffix}").is_file()]
    if len(paths) != 1:
        choices = ", ".join(f"{name}{suffix}" for suffix in _SUFFIXES)
        problem = f"{paths[1].name} also exists; remove one" if paths else f"none of {choices}; write one of them"
        raise InputError(f"{paths[0] if paths else folder}: {problem}")
    (path,) = paths
    read = {".npy": _read_numpy, ".safetensors": _read_safetensors, ".parquet": _read_parquet}[path.suffix]
    rows = read(path)
    if rows.values.ndim != 2 or not rows.values.size or rows.values.dtype.kind != "f":
        raise InputError(
            f"{path}: holds {rows.type_name} numbers of shape {rows.values.shape}; write floating-point numbers of "
            "shape (vectors, dimension)"
        )
    return rows


def _read_numpy(path: Path) -> _Rows:
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: cannot be read as an array of NumPy; write it with numpy.save") from error
    return _Rows(path, values, None, str(values.dtype))


def _read_safetensors(path: Path) -> _Rows:
    try:
        arrays = map_tensors(path)
    except ReleaseError as error:
        raise InputError(f"{path}: cannot be read as safetensors of floating-point numbers; write it again") from error
    name = _OF_DOCUMENTS if _OF_DOCUMENTS in arrays else next(iter(arrays), "")
    if (len(arrays) > 1 and name != _OF_DOCUMENTS) or not arrays:
        raise InputError(f"{path}: holds {len(arrays)} tensors; name that of the vectors {_OF_DOCUMENTS!r}")
    return _Rows(path, arrays[name], None, str(arrays[name].dtype))


def _read_parquet(path: Path) -> _Rows:
    try:
        from pyarrow import ArrowException, types
        from pyarrow.parquet import read_table
    except ImportError as error:
        raise InputError(f"{path}: reading Parquet needs a package: pip install pyarrow") from error
    try:
        table = read_table(path, use_threads=False)
    except (ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: is not Parquet, or is damaged; write it again") from error
    lists = [
        column.name
        for column in table.schema
        if (types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type))
        and types.is_floating(column.type.value_type)
    ]
    if len(lists) != 1:
        raise InputError(f"{path}: {len(lists)} columns hold lists of floating-point numbers; write one, and _id")
    column = table.column(lists[0]).combine_chunks()
    lengths = np.array([0 if row is None else len(row) for row in column], dtype=np.int64)
    if (wrong := lengths != lengths[:1]).any() or not lengths.all():
        row = int(wrong.argmax())
        raise InputError(f"{path}: row {row} (from 0): has {lengths[row]} numbers, and row 0 has {lengths[0]}")
    named = next((name for name in _IDS if name in table.column_names), None)
    ids = None if named is None else [str(value) for value in table.column(named).to_pylist()]
    values = column.flatten().to_numpy(zero_copy_only=False).reshape(len(lengths), -1 if len(lengths) else 0)
    return _Rows(path, values, ids, str(values.dtype))
