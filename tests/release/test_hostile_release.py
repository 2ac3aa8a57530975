"""A release with valid digests but inconsistent contents is refused, with one message that names the file."""

import json
import re
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from taugate.errors import TaugateError
from taugate.registry.catalog import find
from taugate.release.layout import MANIFEST, content_digest
from taugate.retrieval.reader import load


def forge(release: Path, change: Callable[[Path, dict], None]) -> Path:
    """Change a release and update its digests, as an attacker with write access could."""
    raw = json.loads((release / MANIFEST).read_bytes())
    change(release, raw)
    for name, record in raw["files"].items():
        content = (release / name).read_bytes()
        record.update(sha256=sha256(content).hexdigest(), bytes=len(content))
    raw["release_id"] = raw["release_id"][:17] + content_digest(raw)[:12]
    (release / MANIFEST).write_text(json.dumps(raw), encoding="utf-8")
    return release.rename(release.parent / raw["release_id"])


def golden(change: Callable[[list[dict]], list[dict]]) -> Callable[[Path, dict], None]:
    def apply(release: Path, raw: dict) -> None:
        path = release / "golden.jsonl"
        queries = change([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()])
        path.write_text("".join(json.dumps(query) + "\n" for query in queries), encoding="utf-8")

    return apply


def rewrite(name: str, content: Callable[[bytes], bytes]) -> Callable[[Path, dict], None]:
    return lambda release, raw: (release / name).write_bytes(content((release / name).read_bytes())) and None


def offsets(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path, dict], None]:
    def apply(release: Path, raw: dict) -> None:
        path = release / "documents.safetensors"
        path.write_bytes(save({"offsets": change(load_file(path)["offsets"])}))

    return apply


def tensor(dtype: str) -> Callable[[bytes], bytes]:
    """A safetensors file of one tensor of a type that NumPy does not have."""
    header = json.dumps({"offsets": {"dtype": dtype, "shape": [4], "data_offsets": [0, 8]}}).encode()
    return lambda content: len(header).to_bytes(8, "little") + header + bytes(8)


def retyped(found: re.Match[bytes]) -> bytes:
    """A text as a list of nothing, as long as before: the offsets still fit."""
    return b'"text":[' + b" " * (len(found[0]) - 9) + b"]"


CHANGES = {
    "golden without scores": (golden(lambda queries: [query | {"scores": []} for query in queries]), "golden"),
    "golden scores null": (golden(lambda queries: [query | {"scores": [None] * 5} for query in queries]), "golden"),
    "golden ragged": (golden(lambda queries: [queries[0] | {"scores": [1.0]}, *queries[1:]]), "golden"),
    "golden empty": (rewrite("golden.jsonl", lambda content: b""), "golden"),
    "golden of another encoder": (golden(lambda queries: [q | {"scores": [0.9] * 5} for q in queries]), "golden"),
    "golden text a number": (golden(lambda queries: [query | {"text": 5} for query in queries]), "golden"),
    "golden ids a text": (golden(lambda queries: [query | {"documents": "abcde"} for query in queries]), "golden"),
    "golden ids numbers": (golden(lambda queries: [query | {"relevant": [1]} for query in queries]), "golden"),
    "golden scores beyond float32": (golden(lambda queries: [q | {"scores": [1e300] * 5} for q in queries]), "golden"),
    "documents empty": (rewrite("documents.jsonl", lambda content: b""), "documents.jsonl"),
    "documents garbage": (rewrite("documents.jsonl", lambda content: b"x" * len(content)), "documents.jsonl"),
    "documents without text": (
        rewrite("documents.jsonl", lambda content: re.sub(rb'"text":"[^"\\]+"', retyped, content)),
        "holds no document at",
    ),
    "offsets falling": (offsets(lambda array: array[::-1].copy()), "documents.jsonl"),
    "offsets fractions": (offsets(lambda array: array.astype(np.float64)), "documents.jsonl"),
    "offsets negative": (offsets(lambda array: array - 1), "documents.jsonl"),
    "offsets bfloat16": (rewrite("documents.safetensors", tensor("BF16")), "documents.safetensors"),
    "offsets by another name": (rewrite("documents.safetensors", lambda content: save({})), "not an array of offsets"),
    "index of nothing": (rewrite("index.faiss", lambda content: b"IxFI" + bytes(60)), "index.faiss"),
    "metadata garbage": (rewrite("metadata.safetensors", lambda content: b"x" * 99), "metadata.safetensors"),
    "metadata of other documents": (
        rewrite("metadata.safetensors", lambda content: content.replace(b"yrkesbevis", b"yrkesbeviz")),
        "metadata.safetensors.*does not match",
    ),
    "encoder garbage": (rewrite("encoder/model.onnx", lambda content: b"\x00" * 100), "model.onnx"),
    "encoder dimension": (
        rewrite("encoder/encoder.json", lambda content: content.replace(b'"dimension":128', b'"dimension":64')),
        "model.onnx",
    ),
    "encoder without length": (
        rewrite("encoder/encoder.json", lambda content: content.replace(b'"max_length":64', b'"max_length":-1')),
        "encoder.json: max_length",
    ),
    "no metrics": (lambda release, raw: raw.update(metrics={}), "metrics"),
    "tau missing": (lambda release, raw: raw["policy"].update(tau=None), "tau"),
    "tau infinite": (lambda release, raw: raw["policy"].update(tau=1e999), "policy.tau|JSON"),
    "tau beyond float32": (lambda release, raw: raw["policy"].update(tau=1e300), "float32"),
    "other document count": (lambda release, raw: raw["data"].update(documents=5), "count"),
}


@pytest.mark.parametrize(("change", "said"), CHANGES.values(), ids=CHANGES.keys())
def test_forged_release_is_refused(
    releases: Path, tmp_path: Path, change: Callable[[Path, dict], None], said: str
) -> None:
    copy = shutil.copytree(releases, tmp_path / "releases")
    forged = forge(find(copy), change)
    with pytest.raises(TaugateError, match=said):
        load(forged)


def test_unchanged_forgery_loads(releases: Path, tmp_path: Path) -> None:
    """So that the refusals above are for the change, and not for the forging."""
    copy = shutil.copytree(releases, tmp_path / "releases")
    assert load(forge(find(copy), lambda release, raw: None)).manifest.data.documents == 503
