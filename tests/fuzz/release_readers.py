"""Readers of the files of a release, after the check of their digests."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
from pydantic import ValidationError
from tokenizers import Tokenizer

from taugate.policy.policy import Policy
from taugate.registry.catalog import current_id, find
from taugate.release.encoder import CONFIG, TOKENIZER, EncoderConfig
from taugate.release.golden import read_golden
from taugate.release.layout import CURRENT, ENCODER_FOLDER, GOLDEN, MANIFEST, OFFSETS, TEXTS, content_digest
from taugate.release.manifest import Manifest
from taugate.release.outcome_records import PolicyRecord
from taugate.release.verify import verify
from taugate.retrieval import golden
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import DocumentStore, DocumentWriter
from taugate.retrieval.index.top_k import TopK
from tests.fuzz.array_readers import array_readers
from tests.fuzz.reader import JSON_WORDS, TENSOR_WORDS, Reader, of_file

DOCUMENTS = 20  # of the release's, so that an input is small


def release_readers(releases: Path, scratch: Path) -> list[Reader]:
    """Return the readers of the only release of a directory; they write in `scratch`, an empty folder."""
    release = find(releases)
    documents = _few_documents(release, scratch)
    manifest = Manifest.model_validate_json((release / MANIFEST).read_bytes())
    invalid = (ValidationError,)
    config = of_file(scratch / CONFIG, lambda path: _config(path, release / ENCODER_FOLDER / TOKENIZER))
    return [
        Reader("manifest", _manifest(release, scratch), ((release / MANIFEST).read_bytes(),), words=JSON_WORDS),
        Reader("policy", _policy, (manifest.policy.model_dump_json().encode(),), invalid, JSON_WORDS),
        Reader("encoder", config, ((release / ENCODER_FOLDER / CONFIG).read_bytes(),), invalid, JSON_WORDS),
        Reader("current", _current(releases, scratch), ((releases / CURRENT).read_bytes(),)),
        Reader("documents", _documents(scratch / "documents"), (_joined(scratch / "few"),), words=TENSOR_WORDS),
        Reader("golden", of_file(scratch / GOLDEN, _golden), _head(release / GOLDEN, 3), words=JSON_WORDS),
        *array_readers(release, documents, scratch),
    ]


def _head(path: Path, lines: int) -> tuple[bytes, ...]:
    return (b"".join(path.read_bytes().splitlines(keepends=True)[:lines]),)


def _manifest(release: Path, scratch: Path) -> Callable[[bytes], object]:
    """Return a reader of manifests that corrects the release id, so that the code behind the digest is reached."""
    folder = shutil.copytree(release, scratch / "manifest" / release.name)

    def read(content: bytes) -> object:
        nonlocal folder
        try:
            raw = orjson.loads(content)
            identifier = f"20260101T000000Z-{content_digest(raw)[:12]}"
            content = orjson.dumps(raw | {"release_id": identifier})
            folder = folder.rename(folder.parent / identifier)
        except (ValueError, TypeError, KeyError, AttributeError):  # no manifest that could have a digest
            pass
        (folder / MANIFEST).write_bytes(content)
        return verify(folder)

    return read


def _policy(content: bytes) -> None:
    record = PolicyRecord.model_validate_json(content)
    policy = Policy(record.kind, record.tau, record.k, record.metric)
    assert policy.threshold is None or np.isfinite(policy.threshold), "the threshold is not a number"
    policy.covers(5)


def _config(path: Path, tokenizer: Path) -> None:
    """Use a configuration like ExportedEncoder, without the model."""
    config = EncoderConfig.model_validate_json(path.read_bytes())
    text = Tokenizer.from_file(str(tokenizer))
    text.enable_truncation(config.max_length)
    text.encode_batch([config.query_prompt + "permit"], add_special_tokens=config.special_tokens)
    assert 0 < config.dimension < 1 << 20, "the arrays would not fit into memory"


def _current(releases: Path, scratch: Path) -> Callable[[bytes], object]:
    folder = scratch / "releases"
    (folder / find(releases).name).mkdir(parents=True)
    (folder / find(releases).name / MANIFEST).touch()
    return of_file(folder / CURRENT, lambda path: current_id(folder))


def _few_documents(release: Path, scratch: Path) -> DocumentStore:
    (scratch / "few").mkdir()
    (scratch / "documents").mkdir()
    writer = DocumentWriter(scratch / "few")
    for document in DocumentStore(release)[:DOCUMENTS]:
        writer.append(document)
    writer.close()
    return DocumentStore(scratch / "few")


def _joined(folder: Path) -> bytes:
    offsets = (folder / OFFSETS).read_bytes()
    return len(offsets).to_bytes(4, "little") + offsets + (folder / TEXTS).read_bytes()


def _documents(folder: Path) -> Callable[[bytes], object]:
    """Return a reader of both files in one input: length of the offsets, offsets, texts."""

    def read(content: bytes) -> None:
        texts = 4 + int.from_bytes(content[:4], "little")
        (folder / OFFSETS).write_bytes(content[4:texts])
        (folder / TEXTS).write_bytes(content[texts:])
        store = DocumentStore(folder)
        for position in (0, len(store) // 2, len(store) - 1):
            document = store[position]
            assert isinstance(document.id, str) and isinstance(document.encoded_text, str)
            Metadata.of([document])

    return read


def _golden(path: Path) -> None:
    queries = read_golden(path)
    scores = np.zeros((len(queries), len(queries[0].scores)), dtype=np.float32)
    golden.differences(TopK(scores, np.zeros(scores.shape, dtype=np.int64)), queries)
    assert all(isinstance(query.text, str) for query in queries)
    assert all(isinstance(name, str) for query in queries for name in (*query.relevant, *query.documents))
