"""Inconsistent files with valid digests: sizes, widths and places that a library would trust."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import onnx
import pytest

from taugate.errors import ReleaseError, TaugateError
from taugate.registry.catalog import find
from taugate.release.names import INDEX
from taugate.retrieval import reader
from taugate.retrieval.encoder.encoder import GRAPH_FILES
from taugate.retrieval.index.approximate import build, load_index, save
from taugate.storage.files import sha256_files
from tests.release.test_hostile_release import forge

D = 32


def vectors() -> np.ndarray:
    drawn = np.random.default_rng(0).standard_normal((400, D)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def saved_and_changed(kind: str, folder: Path, change: Callable[[Any], None]) -> None:
    save(build(kind, vectors()), folder)
    index = faiss.read_index(str(folder / INDEX))
    change(index)
    faiss.write_index(index, str(folder / INDEX))


def wide(index: Any) -> None:
    index.hnsw.efSearch = 2**31 - 1


def elsewhere(index: Any) -> None:
    """Map the first document to the place of the second."""
    places = faiss.vector_to_array(index.direct_map.array)
    places[0] = places[1]
    faiss.copy_array_to_vector(places, index.direct_map.array)


def twice(index: Any) -> None:
    """A list names its first document in place of its second."""
    number = next(number for number in range(index.nlist) if index.invlists.list_size(number) > 1)
    ids = faiss.rev_swig_ptr(index.invlists.get_ids(number), 2)
    ids[1] = ids[0]


def nowhere(index: Any) -> None:
    """A list names a document that there is not."""
    number = next(number for number in range(index.nlist) if index.invlists.list_size(number))
    faiss.rev_swig_ptr(index.invlists.get_ids(number), 1)[0] = 1 << 40


@pytest.mark.parametrize(
    ("kind", "change"), [("hnsw", wide), ("ivf-flat", elsewhere), ("ivf-flat", twice), ("ivf-flat", nowhere)]
)
def test_inconsistent_index_is_refused(tmp_path: Path, kind: str, change: Callable[[Any], None]) -> None:
    saved_and_changed(kind, tmp_path, change)
    with pytest.raises(ReleaseError, match=INDEX):
        load_index(tmp_path, kind, D)
    saved_and_changed(kind, tmp_path, lambda index: None)
    assert len(load_index(tmp_path, kind, D)) == 400


def test_oversized_count_allocates_no_memory(tmp_path: Path) -> None:
    """FAISS would make room for a terabyte before it reads."""
    save(build("hnsw", vectors()), tmp_path)
    content = (tmp_path / INDEX).read_bytes()
    levels = len(vectors()).to_bytes(8, "little")  # the count of hnsw's levels, behind that of the header
    at = content.index(levels, content.index(levels) + 8)
    (tmp_path / INDEX).write_bytes(content[:at] + (1 << 37).to_bytes(8, "little") + content[at + 8 :])
    with pytest.raises(ReleaseError, match=INDEX):
        load_index(tmp_path, "hnsw", D)
    assert faiss.get_deserialization_vector_byte_limit() > 1 << 37  # restored for other readers in this process


def encoder(**values: Any) -> Callable[[Path, dict], None]:
    def change(release: Path, raw: dict) -> None:
        path = release / "encoder" / "encoder.json"
        path.write_text(json.dumps(json.loads(path.read_bytes()) | values))
        raw["encoder"].update(values)

    return change


def external(release: Path, raw: dict) -> None:
    """Weights that are to be read from a file of the machine."""
    path = release / "encoder" / "model.onnx"
    model = onnx.load(path)
    weights = model.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    place = weights.external_data.add()
    place.key, place.value = "location", "/etc/passwd"
    path.write_bytes(model.SerializeToString())


def vocabulary(release: Path, raw: dict) -> None:
    """Tokens that the graph has no weights of."""
    path = release / "encoder" / "tokenizer.json"
    tokenizer = json.loads(path.read_bytes())
    tokenizer["model"]["vocab"] = {word: token + 10**6 for word, token in tokenizer["model"]["vocab"].items()}
    path.write_text(json.dumps(tokenizer))


def golden(release: Path, raw: dict) -> None:
    lines = (release / "golden.jsonl").read_text().splitlines()
    (release / "golden.jsonl").write_text("\n".join([json.dumps(json.loads(lines[0]) | {"text": 5}), *lines[1:]]))


CHANGES = {
    "padding": (encoder(pad_multiple=1 << 31), "pad_multiple"),
    "no tokens": (encoder(max_length=0), "max_length"),
    "dimension": (encoder(dimension=1 << 40), "dimension"),
    "weights elsewhere": (external, "model.onnx"),
    "tokens without weights": (vocabulary, "encoder or index.faiss cannot answer"),
    "golden number": (golden, "golden.jsonl"),
    "k true": (lambda release, raw: raw["policy"].update(k=True), "policy.k"),
    "k a text": (lambda release, raw: raw["policy"].update(k="5"), "policy.k"),
}


@pytest.mark.parametrize(("tamper", "said"), CHANGES.values(), ids=CHANGES.keys())
def test_inconsistent_release_is_refused(releases: Path, tmp_path: Path, tamper: Callable, said: str) -> None:
    def change(release: Path, raw: dict) -> None:
        tamper(release, raw)
        raw["encoder"]["sha256"] = sha256_files(release / "encoder", GRAPH_FILES)

    forged = forge(find(shutil.copytree(releases, tmp_path / "releases")), change)
    with pytest.raises(TaugateError, match=said):
        reader.load(forged)


def test_invalid_document_raises_when_read(releases: Path, tmp_path: Path) -> None:
    """Only three are looked at before: reading millions would take a service seconds."""

    def change(release: Path, raw: dict) -> None:
        lines = (release / "documents.jsonl").read_bytes().split(b"\n")
        lines[5] = b"x" * len(lines[5])
        lines[6] = json.dumps({"_id": 6, "title": None, "text": "", "metadata": {}}).encode().ljust(len(lines[6]))
        (release / "documents.jsonl").write_bytes(b"\n".join(lines))

    documents = reader.load(forge(find(shutil.copytree(releases, tmp_path / "releases")), change)).documents
    assert documents[4].text
    for position in (5, 6):
        with pytest.raises(ReleaseError, match=rf"documents\.jsonl: holds no document at {position}"):
            documents[position]
