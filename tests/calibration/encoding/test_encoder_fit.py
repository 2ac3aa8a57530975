"""A calibration says which texts the encoder cannot read or cuts off, and what similarity it was trained for."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from taugate.calibration.encoding.encoder_fit import encoder_fit, encoder_fit_warnings, trained_similarity
from taugate.cli import main as cli
from taugate.data.beir import read_dataset
from taugate.registry.catalog import find
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.fake_encoder import MAX_LENGTH, write_fake_encoder

KNOWN = [f"pump {number} stands in hall {number}" for number in range(40)]
THAI = ["ทีมฟุตบอลใดชนะเลิศการแข่งขัน", "ใครเป็นผู้ทำประตูสูงสุด", "เขียนถึงงานบริการ"]


def write_data(folder: Path, documents: list[str], queries: list[str]) -> Path:
    """A data set in which query n is answered by document n."""
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", documents), ("queries", queries)):
        lines = [json.dumps({"_id": f"{name[0]}{place}", "text": text}) for place, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = "".join(f"q{place}\tc{place}\t1\n" for place in range(len(queries)))
    (folder / "qrels/test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fake_encoder(tmp_path_factory.mktemp("encoder") / "e", KNOWN)


def fit_of(folder: Path, tmp_path: Path, documents: list[str], queries: list[str], trained: Any = None) -> Any:
    (tmp_path / "spool").mkdir()
    dataset = read_dataset(write_data(tmp_path / "data", documents, queries), "test", tmp_path / "spool")
    loaded = ExportedEncoder.load(folder)
    return encoder_fit(dataset, loaded, loaded, trained)


def test_encoder_fit_without_problems_is_none(folder: Path, tmp_path: Path) -> None:
    assert fit_of(folder, tmp_path, KNOWN, KNOWN[:30]) is None


def test_encoder_fit_counts_unread_texts(folder: Path, tmp_path: Path) -> None:
    long = " ".join(["pump"] * (MAX_LENGTH + 1))
    half_known = [f"pump hall stands {word}" for word in ("กขค", "งจฉ")]  # one vector, most of the characters read
    fit = fit_of(folder, tmp_path, [*KNOWN, *THAI, *half_known], [*KNOWN[:30], THAI[0], long])
    assert (fit.documents, fit.unreadable_documents, fit.indistinct_documents) == (45, 3, 5)
    assert (fit.queries, fit.truncated_queries, fit.unreadable_queries) == (32, 1, 1)
    said = encoder_fit_warnings(fit, "fake", MAX_LENGTH)
    assert [each.split(":")[0].replace("\xa0", " ") for each in said] == [
        "the encoder cannot read 3 of 45 documents (6.7 %)",
        "5 of 45 documents (11.1 %) have the same vector as another text, because they differ only in words that the "
        "encoder does not know; choose an encoder for their language",
        "the encoder cannot read 1 of 32 labelled queries (3.1 %)",
        "1 of 32 labelled queries (3.1 %) are longer than the encoder's 64 tokens; the rest of the query is ignored, "
        "and the reply says `truncated`",
    ]


def test_encoder_fit_names_trained_similarity(folder: Path, tmp_path: Path) -> None:
    fit = fit_of(folder, tmp_path, KNOWN, KNOWN[:30], "dot")
    (said,) = encoder_fit_warnings(fit, "fake", MAX_LENGTH)
    assert said.startswith("the encoder fake was trained for the dot product and does not normalize its vectors")


def test_calibrate_records_unread_texts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_data(tmp_path / "data", [*KNOWN, *THAI], KNOWN[:35])
    assert (
        cli.main(["calibrate", str(data), "--verbose", "--releases", str(tmp_path / "r"), "--encoder", str(folder)])
        == 0
    )
    assert "warning: the encoder cannot read 3 of 43 documents" in capsys.readouterr().err
    release = find(tmp_path / "r")
    manifest = json.loads((release / "manifest.json").read_bytes())
    assert manifest["encoder_fit"] == {
        "documents": 43,
        "unreadable_documents": 3,
        "indistinct_documents": 3,
        "queries": 35,
        "truncated_queries": 0,
        "unreadable_queries": 0,
    }
    assert "The encoder cannot read 3 of 43 documents" in (release / "report.html").read_text(encoding="utf-8")
    assert cli.main(["release", "verify", release.name, "--releases", str(tmp_path / "r")]) == 0


def test_calibrate_suitable_encoder_has_no_record(releases: Path) -> None:
    assert "encoder_fit" not in json.loads((find(releases) / "manifest.json").read_bytes())


MODELS: list[tuple[str, str | None, list[str], str | None]] = [
    ("model", "dot", ["Transformer", "Pooling"], "dot"),
    ("model", "dot_product", ["Transformer", "Pooling"], "dot"),
    ("model", "euclidean", ["Transformer", "Pooling"], "euclidean"),
    ("model", "manhattan", ["Transformer", "Pooling", "Dense"], "manhattan"),
    ("model", "dot", ["Transformer", "Pooling", "Normalize"], None),
    ("model", "cosine", ["Transformer", "Pooling"], None),
    ("model", None, ["Transformer", "Pooling"], None),
    ("msmarco-distilbert-dot-v5", None, ["Transformer", "Pooling"], "dot"),
    ("contriever", None, ["Transformer", "Pooling"], "dot"),
    ("msmarco-dot-v5", "cosine", ["Transformer", "Pooling"], None),
    ("dotted-model", None, ["Transformer", "Pooling"], None),
]


@pytest.mark.parametrize(("name", "written", "modules", "trained"), MODELS)
def test_trained_similarity_of_models(
    tmp_path: Path, name: str, written: str | None, modules: list[str], trained: str | None
) -> None:
    model = tmp_path / name
    model.mkdir()
    listed = [{"idx": place, "type": f"sentence_transformers.models.{each}"} for place, each in enumerate(modules)]
    (model / "modules.json").write_text(json.dumps(listed))
    (model / "config_sentence_transformers.json").write_text(json.dumps({"similarity_fn_name": written}))
    assert trained_similarity(str(model)) == trained


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"[{}]", b"\xff"])
def test_trained_similarity_invalid_folder_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "modules.json").write_bytes(content)
    assert trained_similarity(str(tmp_path)) is None
    assert trained_similarity(str(tmp_path / "nowhere" / "model")) is None


def test_trained_similarity_from_release_manifest(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "encoder")
    assert trained_similarity(str(tmp_path / "encoder")) is None
    (tmp_path / "manifest.json").write_text(json.dumps({"encoder_fit": {"trained_similarity": "dot"}}))
    assert trained_similarity(str(tmp_path / "encoder")) == "dot"
